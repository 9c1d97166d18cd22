"""The one way in for data of users: rows of a file, of a folder, or of a data set on the Hub, with a column map.

| name | what |
|---|---|
| ``FILE`` | ``.jsonl``, ``.json`` (a list, or lines), ``.csv``, ``.tsv``, ``.parquet``, ``.arrow`` |
| ``FOLDER``, ``FOLDER/SPLIT`` | such files, told by their names, or what `datasets.save_to_disk` wrote |
| ``hub:OWNER/NAME[@REVISION][:CONFIG][/SPLIT]`` | tables of the Hub, from its cache or downloaded into it |

Rows are read one after the other: memory holds a line, an item of a list, or 256 rows of Parquet. Who needs rows by
name keeps what it needs of them with `rl_agents.data.row_cache`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

from rl_agents.data.columns import Columns, mapped, missing, read_columns, unknown_column
from rl_agents.data.hub import PREFIX, hub_files
from rl_agents.data.table_files import SUFFIXES, Row, file_rows
from rl_agents.data.table_folders import folder_files
from rl_agents.errors import InputError

__all__ = ["Row", "Table", "fingerprint", "open_table"]

#: Rows of JSON in which a mapped column must occur at least once.
LOOKED_AT = 64


@dataclass(frozen=True)
class Table:
    """Rows by name. Make one with `open_table`.

    Attributes:
        name: as it was given.
        files: where they are, in order.
        columns: see `rl_agents.data.columns`.
        fields: what the reader asks for: other columns of Parquet and Arrow are not read. Empty: all.
    """

    name: str
    files: tuple[Path, ...]
    columns: Columns = ()
    fields: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows, columns mapped; ``share`` is of all files.

        Raises:
            InputError: a file that cannot be read (any further), or that lacks a column of the map.
        """
        for number, path in enumerate(self.files):
            for row in self._file_rows(path):
                yield replace(row, share=(number + row.share) / len(self.files)) if len(self.files) > 1 else row

    def version(self) -> str:
        """Return what tells these rows from others without reading them."""
        return json.dumps([fingerprint(self.files), self.columns, self.fields])

    def _file_rows(self, path: Path) -> Iterator[Row]:
        rows = file_rows(path, self.columns, self.fields)
        if not self.columns:
            return rows
        first = list(islice(rows, LOOKED_AT))
        self._check_columns(path, [row.value for row in first if isinstance(row.value, dict)])
        return (replace(row, value=self._mapped(row)) for row in chain(first, rows))

    def _mapped(self, row: Row) -> object:
        value = mapped(row.value, self.columns)
        if not self.fields or not isinstance(value, dict):
            return value
        return {name: item for name, item in value.items() if name in self.fields}

    def _check_columns(self, path: Path, records: Sequence[Mapping[str, object]]) -> None:
        """Refuse a column of the map that none of the first rows has: a typing error, most likely."""
        if path.suffix in (".parquet", ".arrow") or not records:
            return  # their schemas have said so
        for name, column in self.columns:
            if all(missing(record, column) for record in records):
                raise unknown_column(path, name, column, dict.fromkeys(key for record in records for key in record))


def open_table(
    name: str | Path, columns: Mapping[str, str] | None = None, fields: Sequence[str] = (), key: str = "columns"
) -> Table:
    """Find the rows that ``name`` says; nothing is read yet.

    Args:
        columns: what the reader asks for -> column, or a path in one (``extra_info.answer``).
        fields: what the reader asks for; empty: all there is.
        key: how messages call ``columns``, such as ``env.columns``.

    Raises:
        InputError: nothing there, or a map of what the reader does not ask for.
    """
    wanted = read_columns(columns or {}, fields, key)
    return Table(str(name), table_files(str(name)), wanted, tuple(fields))


def table_files(name: str) -> tuple[Path, ...]:
    """Return the files of a name; raises as `open_table` does."""
    if name.startswith(PREFIX):
        return hub_files(name)
    path = Path(name).expanduser()
    if path.is_dir():
        return folder_files(path, "", "", str(path))
    if path.exists():
        return (path,)
    if path.suffix not in SUFFIXES and path.parent.is_dir() and path.parent != Path():
        return folder_files(path.parent, "", path.name, str(path.parent))
    beside = [one.name for one in path.parent.iterdir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.6)
    raise InputError(f"{path}: no such file or folder{f'; did you mean {near[0]!r}?' if near else ''}")


def fingerprint(paths: Sequence[Path]) -> str:
    """Return what tells these files from others without reading them: paths, sizes and times.

    Raises:
        InputError: a file is missing.
    """
    stats = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from error
        stats.append([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    return json.dumps(stats)
