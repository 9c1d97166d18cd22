"""Column maps: which column of a table holds what a reader asks for.

``{"question": "prompt", "answer": "extra_info.answer"}`` takes ``question`` from the column ``prompt`` and ``answer``
from ``answer`` inside of ``extra_info``; a number is a place in a list (``choices.0.text``). All other columns keep
their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError, nearest

#: (what a reader asks for, column or path in it), in the order in which they were given.
Columns = tuple[tuple[str, str], ...]

_ABSENT = object()


def read_columns(given: Mapping[str, str], fields: Iterable[str] = (), key: str = "columns") -> Columns:
    """Return a column map.

    Args:
        fields: what the reader asks for; empty: anything.
        key: how messages call the map.

    Raises:
        InputError: a name that the reader does not ask for, or no column.
    """
    known = list(fields)
    for name, column in given.items():
        if known and name not in known:
            raise InputError(f"{key}: nothing called '{name}' is read here: {nearest(name, known)}")
        if not isinstance(column, str) or not column:
            raise InputError(f"{key}: '{name}' has no column; write it as {name}:COLUMN")
    return tuple(given.items())


def mapped(record: Any, columns: Columns) -> Any:
    """Return a record by the names that the reader asks for; what is no object stays as it is."""
    if not columns or not isinstance(record, dict):
        return record
    found = {name: value for name, path in columns if (value := value_at(record, path)) is not _ABSENT}
    taken = {name for name, _ in columns} | {path for _, path in columns}
    return {**found, **{name: value for name, value in record.items() if name not in taken}}


def value_at(record: Any, path: str) -> Any:
    """Return what is at a path, or a mark that `missing` knows; a column whose own name has dots comes first."""
    if isinstance(record, dict) and path in record:
        return record[path]
    for part in path.split("."):
        if isinstance(record, dict) and part in record:
            record = record[part]
        elif isinstance(record, list) and part.isdecimal() and int(part) < len(record):
            record = record[int(part)]
        else:
            return _ABSENT
    return record


def missing(record: Any, path: str) -> bool:
    """Whether a record has nothing at a path."""
    return value_at(record, path) is _ABSENT


def unknown_column(source: Path, name: str, path: str, columns: Iterable[str]) -> InputError:
    """Build the error for a column that a file does not have: the nearest one, and those that there are."""
    there = list(columns)
    near = nearest(path, there) if there else ""
    hint = f"{near} " if near.startswith("did you mean") else ""
    shown = ", ".join(there[:20]) + (", ..." if len(there) > 20 else "")
    return InputError(f"{source}: no column '{path}' for '{name}': {hint}it has: {shown or 'none'}")
