"""Reading expert traces: rows of any table, or a pool. Every defect is named with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.data.hub import PREFIX
from rl_agents.data.tables import open_table
from rl_agents.errors import InputError
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.tools.strict_json import strict_json
from rl_agents.traces.formats import FIELDS, Trace, read_trace
from rl_agents.traces.pools import pool_in, pool_records


@dataclass(frozen=True, slots=True)
class Defect:
    """A trace that cannot be used; ``str()`` is ``FILE:LINE: PROBLEM``."""

    source: str
    problem: str

    def __str__(self) -> str:
        return f"{self.source}: {self.problem}"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """What a file holds: its good traces and its defects, in order."""

    traces: tuple[Trace, ...]
    defects: tuple[Defect, ...]


def read_traces(name: str | Path, tools: Sequence[Tool] = (), columns: Mapping[str, str] | None = None) -> TraceFile:
    """Read all traces of a table or a pool; see `rl_agents.traces.formats` for the forms, which may be mixed.

    Args:
        name: see `rl_agents.data.tables`, or a pool.
        tools: definitions for traces that have none.
        columns: what is read -> column.

    Raises:
        InputError: it is missing, cannot be read at all, or holds nothing.
    """
    traces: list[Trace] = []
    defects: list[Defect] = []
    for found in iter_traces(name, tools, columns):
        if isinstance(found, Trace):
            traces.append(found)
        else:
            defects.append(found)
    if not traces and not defects:
        raise InputError(f"{name}: no traces in it")
    return TraceFile(tuple(traces), tuple(defects))


def iter_traces(
    name: str | Path, tools: Sequence[Tool] = (), columns: Mapping[str, str] | None = None
) -> Iterator[Trace | Defect]:
    """Yield the traces of `read_traces` one after the other, and what is wrong with the rest."""
    for source, record in _records(name, columns):
        try:
            if isinstance(record, ValueError):
                raise record
            yield read_trace(record, source, tools)
        except ValueError as error:
            yield Defect(source, str(error))


def read_tool_file(path: Path) -> tuple[Tool, ...]:
    """Read a JSON file with a list of tool definitions.

    Raises:
        InputError: missing or broken file, or a broken definition.
    """
    try:
        return read_tools(strict_json(Path(path).read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _records(name: str | Path, columns: Mapping[str, str] | None) -> Iterator[tuple[str, Any]]:
    """Yield (FILE:LINE or FILE:SESSION, JSON value or the `ValueError` in its place)."""
    if not str(name).startswith(PREFIX) and (pool := pool_in(Path(name))) is not None:
        yield from ((f"{name}:{session}", record) for session, record in pool_records(pool))
        return
    source = ""
    try:
        for row in open_table(name, columns, FIELDS, "--columns"):
            source = f"{row.path}:{row.line}"
            try:
                yield source, row.record()
            except ValueError as error:
                yield source, error
    except InputError as error:  # what follows broken syntax cannot be told apart
        if not source:
            raise
        path = source.rpartition(":")[0]
        yield path, ValueError(f"{str(error).removeprefix(f'{path}: ')}; the rest is not read")
