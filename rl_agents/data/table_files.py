"""Rows of one file: JSON lines, a JSON list, CSV, Parquet or Arrow, one after the other and never all at once."""

from __future__ import annotations

import csv
import datetime
import decimal
import functools
import io
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_agents.data.columns import Columns, unknown_column
from rl_agents.data.json_stream import JsonStream
from rl_agents.errors import InputError
from rl_agents.tools.strict_json import check_text_file, strict_json

if TYPE_CHECKING:
    import pyarrow

#: Kinds of files by the ends of their names; of a split in several forms the first one is read.
SUFFIXES = (".parquet", ".arrow", ".jsonl", ".ndjson", ".json", ".csv", ".tsv")
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
        """How messages name it."""
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
    """Yield the rows of a file in its order; the content decides where a name's end says something else.

    Args:
        columns: a column map whose columns must be there; it is not applied here.
        fields: columns that are wanted beside those; empty: all. JSON has all in any case.

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
        return [_pair(item) if isinstance(item, tuple) else _plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):  # pictures and the like: nothing here reads them
        return None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | decimal.Decimal):
        return value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    return value


def _pair(pair: tuple[Any, ...]) -> list[Any]:
    return [_plain(item) for item in pair]
