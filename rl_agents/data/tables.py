"""The one way in for data of users: rows of a file, of a folder, or of a data set on the Hub, with a column map.

| name | what |
|---|---|
| ``FILE`` | ``.jsonl``, ``.json`` (a list, or lines), ``.csv``, ``.tsv``, ``.parquet``, ``.arrow`` |
| ``FOLDER``, ``FOLDER/SPLIT`` | such files, found by their names, or what `datasets.save_to_disk` wrote |
| ``hub:OWNER/NAME[@REVISION][:CONFIG][/SPLIT]`` | tables of the Hub, from its cache or downloaded into it |

Rows are read one after the other: memory holds a line, an item of a list, or 256 rows of Parquet. Code that needs rows
by name keeps what it needs of them with `rl_agents.data.row_cache`.

A column map says which column holds what a reader asks for: ``{"question": "prompt", "answer": "extra_info.answer"}``
takes ``question`` from the column ``prompt`` and ``answer`` from ``answer`` inside of ``extra_info``; a number is a
place in a list (``choices.0.text``). All other columns keep their names.

The package `datasets` would copy every table into files of its own, give all rows of JSON one type, and name neither
file nor line of a row that it cannot read.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import difflib
import functools
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agents.data.hub import PREFIX, SUFFIXES, folder_files, hub_files
from rl_agents.data.json_stream import JsonStream
from rl_agents.errors import InputError, nearest
from rl_agents.tools.strict_json import check_text_file, strict_json

if TYPE_CHECKING:
    import pyarrow

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
    return value_at(record, path) is _ABSENT


def unknown_column(source: Path, name: str, path: str, columns: Iterable[str]) -> InputError:
    """Build the error for a column that a file does not have: the nearest one, and those that there are."""
    there = list(columns)
    near = nearest(path, there) if there else ""
    hint = f"{near} " if near.startswith("did you mean") else ""
    shown = ", ".join(there[:20]) + (", ..." if len(there) > 20 else "")
    return InputError(f"{source}: no column '{path}' for '{name}': {hint}it has: {shown or 'none'}")


#: Longest line of JSON, and longest cell of CSV.
MAX_LINE_BYTES = 16 << 20
#: Rows of Parquet and Arrow that are in memory as Python objects.
BATCH = 256
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file, or what is wrong with it.

    Attributes:
        kind: ``line``, ``item`` or ``row``: what ``number``, from 1, counts (empty lines of JSONL count).
        line: where it begins; the number where there are no lines.
        share: of the file that has been read.
    """

    path: Path
    kind: str
    number: int
    line: int
    value: Any
    share: float

    @property
    def place(self) -> str:
        return f"{self.path}, {self.kind} {self.number}"

    def record(self) -> Any:
        """Return what the row says.

        Raises:
            ValueError: it cannot be read; the reason.
        """
        if isinstance(self.value, Exception):
            raise ValueError(str(self.value))
        return self.value


def file_rows(path: Path, columns: Columns = (), fields: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file in its order; its content takes precedence over the name's ending.

    Args:
        columns: a column map whose columns must be there; it is not applied here.
        fields: further columns to read; empty: all. JSON has all in any case.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    try:
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(b"PAR1") or path.suffix == ".parquet":
            return _parquet_rows(path, columns, fields)
        if start.startswith(b"ARROW1") or path.suffix == ".arrow":
            return _arrow_rows(path, columns, fields)
        check_text_file(start)
        if path.suffix in (".csv", ".tsv"):
            return _csv_rows(path, columns)
        first = start.removeprefix(_BOM).lstrip()[:1]
        is_list = path.suffix == ".json" or (first == b"[" and path.suffix not in (".jsonl", ".ndjson"))
        return _line_rows(path) if not is_list or (first == b"{" and _has_lines(path)) else _list_rows(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(f"{path}: {error}") from error


def _has_lines(path: Path) -> bool:
    """Whether a file called .json holds JSON lines, as many on the Hub do: one object ends where its line does."""
    with path.open("rb") as file:
        first, second = file.readline(MAX_LINE_BYTES), file.readline(MAX_LINE_BYTES)
    try:
        return second.lstrip()[:1] == b"{" and isinstance(json.loads(first.removeprefix(_BOM)), dict)
    except (ValueError, RecursionError):
        return False


def _line_rows(path: Path) -> Iterator[Row]:
    size, done, number = max(path.stat().st_size, 1), 0, 0
    with path.open("rb") as file:
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number, done = number + 1, done + len(raw)
            value: Any
            if len(raw) > MAX_LINE_BYTES:
                value = ValueError(f"a line of more than {MAX_LINE_BYTES >> 20} MiB")
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE_BYTES)
                    done += len(raw)
            elif raw.strip():
                value = _parsed(raw.removeprefix(_BOM) if number == 1 else raw)
            else:
                continue
            yield Row(path, "line", number, number, value, done / size)


def _parsed(raw: bytes) -> Any:
    try:
        return strict_json(raw.decode().strip())
    except UnicodeDecodeError as error:
        return ValueError(f"not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1})")
    except ValueError as error:
        return error


def _list_rows(path: Path) -> Iterator[Row]:
    size, stream = max(path.stat().st_size, 1), JsonStream(path, strict=True)
    for number, (key, value) in enumerate(stream, start=1):
        if key:
            raise InputError(f"{path}: a JSON object, not a list; one object a line is JSONL: name it .jsonl")
        yield Row(path, "item", number, stream.line, value, min(stream.position / size, 1.0))


def _csv_rows(path: Path, columns: Columns) -> Iterator[Row]:
    """All cells are text; an empty one is absent, and so are columns without a name."""
    csv.field_size_limit(MAX_LINE_BYTES)
    size = max(path.stat().st_size, 1)
    try:
        with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
            header = next(reader, [])
            named = [name for name in header if name.strip()]
            if len(set(named)) < len(named):
                raise InputError(f"{path}: the column '{max(named, key=named.count)}' occurs twice")
            if len(named) < len(header):
                _report_unnamed(path, tuple(i for i, name in enumerate(header, start=1) if not name.strip()))
            for name, column in columns:
                if column not in named:
                    raise unknown_column(path, name, column, named)
            for number, value in _csv_values(reader, header):
                yield Row(path, "line", number, number, value, min(raw.tell() / size, 1.0))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from None


@functools.cache
def _report_unnamed(path: Path, columns: tuple[int, ...]) -> None:
    """Print, once per file, the numbers of excluded columns."""
    numbers = ", ".join(map(str, columns))
    print(f"{path}: columns without a name in the header are excluded: {numbers}", file=sys.stderr, flush=True)


def _csv_values(reader: Any, header: Sequence[str]) -> Iterator[tuple[int, Any]]:
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield reader.line_num, ValueError(f"not CSV: {error}")
            continue
        if cells and len(cells) != len(header):
            yield reader.line_num, ValueError(f"{len(cells)} cells, where the header has {len(header)}")
        elif cells:
            yield (
                reader.line_num,
                {name: cell for name, cell in zip(header, cells, strict=True) if cell and name.strip()},
            )


def _parquet_rows(path: Path, columns: Columns, fields: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            names = _wanted(path, file.schema_arrow, columns, fields)
            batches = file.iter_batches(BATCH, columns=names, use_threads=False)
            yield from _batch_rows(path, batches, file.metadata.num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _arrow_rows(path: Path, columns: Columns, fields: Sequence[str]) -> Iterator[Row]:
    """Arrow files, and the streams that `datasets.save_to_disk` writes; mapped into memory, not read into it."""
    import pyarrow

    try:
        with pyarrow.memory_map(str(path)) as source:
            if source.read(6) == b"ARROW1":
                file = pyarrow.ipc.open_file(source)
                schema, batches = file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
            else:
                source.seek(0)
                stream = pyarrow.ipc.open_stream(source)
                schema, batches = stream.schema, iter(stream)
            names = _wanted(path, schema, columns, fields)
            yield from _batch_rows(path, (batch.select(names) for batch in batches), 0)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Arrow file: {str(error).splitlines()[0]}") from None


def _batch_rows(path: Path, batches: Iterator[pyarrow.RecordBatch], rows: int) -> Iterator[Row]:
    number = 0
    for batch in batches:
        for begin in range(0, batch.num_rows, BATCH):
            for value in batch.slice(begin, BATCH).to_pylist():
                number += 1
                yield Row(path, "row", number, number, _plain(value), number / rows if rows else 0.0)


def _wanted(path: Path, schema: pyarrow.Schema, columns: Columns, fields: Sequence[str]) -> list[str]:
    """Return the columns to read, after looking for those that the map names."""
    heads = {name: _head(path, schema, name, column) for name, column in columns}
    return [name for name in schema.names if not fields or name in fields or name in heads.values()]


def _head(path: Path, schema: pyarrow.Schema, name: str, column: str) -> str:
    """Return the column of a path; raises `InputError` where the schema has none, or nothing at its end."""
    import pyarrow

    if column in schema.names:
        return column
    head, *rest = column.split(".")
    if head not in schema.names:
        raise unknown_column(path, name, column, schema.names)
    kind, walked = schema.field(head).type, head
    for part in rest:
        if pyarrow.types.is_struct(kind):
            inside = [kind.field(i).name for i in range(kind.num_fields)]
            if part not in inside:
                raise unknown_column(path, name, column, [f"{walked}.{one}" for one in inside])
            kind = kind.field(part).type
        elif part.isdecimal() and hasattr(kind, "value_type"):
            kind = kind.value_type
        else:
            raise unknown_column(path, name, column, [walked])
        walked = f"{walked}.{part}"
    return head


def _plain(value: Any) -> Any:
    """Return a cell as JSON would have it. Nulls are absent: Arrow fills in what a row of a nested type lacks."""
    if isinstance(value, dict):
        return {name: plain for name, item in value.items() if (plain := _plain(item)) is not None}
    if isinstance(value, list):
        return [_plain(list(item) if isinstance(item, tuple) else item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):  # pictures and the like: nothing here reads them
        return None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | decimal.Decimal):
        return value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    return value


__all__ = ["Row", "Table", "fingerprint", "open_table"]

#: Rows of JSON in which a mapped column must occur at least once.
LOOKED_AT = 64


@dataclass(frozen=True)
class Table:
    """Rows by name. Make one with `open_table`.

    Attributes:
        files: where they are, in order.
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
