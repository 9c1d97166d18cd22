"""Read users' data: rows of a file, of a folder, or of a data set on the Hub (docs/how-to/use-your-data.md).

Rows are read one after the other: memory holds a line, an item of a list, or 256 rows of Parquet. For access by id use
`rl_agents.data.row_cache`.

A column map assigns columns to a reader's fields: ``{"question": "prompt", "answer": "extra_info.answer"}`` takes
``question`` from the column ``prompt`` and ``answer`` from ``answer`` inside ``extra_info``; a number is an index of a
list (``choices.0.text``). All other columns keep their names.

The package `datasets` would copy every table into files of its own, give all rows of JSON one type, and name neither
file nor line of an unreadable row.
"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rl_agents.data.hub import PREFIX, SUFFIXES, folder_files, hub_files
from rl_agents.errors import InputError, nearest, report_once, similar, similar_file
from rl_agents.tools.strict_json import DECODER_OF_TABLES, check_plain, check_text_file, strict_json, written

if TYPE_CHECKING:
    import pyarrow

#: (field of the reader, column or path in it), in the given order.
Columns = tuple[tuple[str, str], ...]

_ABSENT = object()


def value_at(record: Any, path: str) -> Any:
    """Return the value at a path, or `_ABSENT`; a column whose own name contains dots takes precedence."""
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


def unknown_column(source: Path, name: str, path: str, columns: Iterable[str]) -> InputError:
    """Build the error for a missing column: the nearest one, and the existing ones."""
    there = list(columns)
    hint = similar(path, there)
    shown = ", ".join(there[:20]) + (", ..." if len(there) > 20 else "")
    return InputError(f"{source}: no column '{path}' for '{name}': {hint and f'{hint} '}it has: {shown or 'none'}")


#: Maximum length of a line of JSON and of a cell of CSV.
MAX_LINE_BYTES = 16 << 20
#: Number of rows of Parquet that are Python objects at a time.
BATCH = 256
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a file, or the error of reading it.

    Attributes:
        kind: ``line``, ``item`` or ``row``: unit of ``number``, from 1 (empty lines of JSONL count).
        line: line on which it begins; the number if there are no lines.
        share: share of the file that has been read.
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
        """Return the row's value, without columns that are null. Raises `ValueError`: it cannot be read; the reason."""
        if isinstance(self.value, Exception):
            raise ValueError(str(self.value))
        if isinstance(self.value, dict):
            return {name: item for name, item in self.value.items() if item is not None}
        return self.value


def object_of(record: Any, noun: str) -> dict[str, Any]:
    """Return a row's value as an object. Raises `ValueError`: it is none; ``noun`` is what it should be."""
    if not isinstance(record, dict):
        raise ValueError(f"{noun} is {type(record).__name__}, not an object")
    return record


def text_of(record: Mapping[str, Any], field: str, most: int = 0, least: int = 1) -> str:
    """Return a field's text; a number is the text that is written.

    Args:
        most, least: number of characters, blank ones not counted as the least; 0: no limit.

    Raises:
        ValueError: it is absent, or no such text.
    """
    if field not in record:
        there = ", ".join(ascii(name)[1:-1] for name in list(record)[:8])
        raise ValueError(f"no '{field}'; it has: {there or 'nothing'}")
    value = written(record[field])
    if isinstance(value, str) and least <= len(value.strip()) and len(value) <= (most or len(value)):
        return value
    size = f"{least} to {most}" if most else f"at least {least}"
    raise ValueError(f"'{field}' is {ascii(value)[:40]}, not a text of {size} characters")


def file_rows(path: Path, columns: Columns = (), fields: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of a file in order; its content takes precedence over its suffix.

    Args:
        columns: a column map whose columns must exist; it is not applied here.
        fields: further columns to read; empty: all. Rows of JSON always have all.

    Raises:
        InputError: the file cannot be read, or lacks a column.
    """
    try:
        with path.open("rb") as file:
            start = file.read(64)
        if start.startswith(b"PAR1") or path.suffix == ".parquet":
            return _parquet_rows(path, columns, fields)
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
    """Whether a file with the suffix .json contains JSON lines, as many on the Hub do: the first line is an object."""
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
        return strict_json(raw.decode().strip(), DECODER_OF_TABLES)
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
    """Yield rows of text cells; empty cells and columns without a name are absent."""
    csv.field_size_limit(MAX_LINE_BYTES)
    size = max(path.stat().st_size, 1)
    try:
        with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True, delimiter="\t" if path.suffix == ".tsv" else ",")
            header = [name.strip() for name in next(reader, [])]
            named = [name for name in header if name]
            if len(set(named)) < len(named):
                raise InputError(f"{path}: the column '{max(named, key=named.count)}' occurs twice")
            if len(named) < len(header):
                numbers = ", ".join(str(i) for i, name in enumerate(header, start=1) if not name)
                report_once(f"{path}: columns without a name in the header are excluded: {numbers}")
            for name, column in columns:
                if column not in named:
                    raise unknown_column(path, name, column, named)
            for number, value in _csv_values(reader, header):
                yield Row(path, "line", number, number, value, min(raw.tell() / size, 1.0))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from None


def _csv_values(reader: Any, header: Sequence[str]) -> Iterator[tuple[int, Any]]:
    while True:
        line = reader.line_num + 1  # a quoted cell may end on a later one
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, ValueError(f"not CSV: {error}")
            continue
        if cells and len(cells) != len(header):
            yield line, ValueError(f"{len(cells)} cells, where the header has {len(header)}")
        elif cells:
            yield line, {name: cell for name, cell in zip(header, cells, strict=True) if cell and name}


def _parquet_rows(path: Path, columns: Columns, fields: Sequence[str]) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            heads = [_head(path, schema, name, column) for name, column in columns]
            names = [name for name in schema.names if not fields or name in fields or name in heads]
            batches = file.iter_batches(BATCH, columns=names, use_threads=False)
            values = (value for batch in batches for value in batch.to_pylist())
            for number, value in enumerate(values, start=1):
                yield Row(path, "row", number, number, _plain(value), number / file.metadata.num_rows)
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from None


def _head(path: Path, schema: pyarrow.Schema, name: str, column: str) -> str:
    """Return the column of a path; raises `InputError` if the schema does not have the path."""
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
    """Return a cell as a JSON value. Nulls are absent: Arrow adds them to rows of nested types."""
    if isinstance(value, dict):
        return {name: plain for name, item in value.items() if (plain := _plain(item)) is not None}
    if isinstance(value, list):
        return [_plain(list(item) if isinstance(item, tuple) else item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):  # such as pictures, which are not read here
        return None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta | decimal.Decimal):
        return value.total_seconds() if isinstance(value, datetime.timedelta) else float(value)
    return value


#: Rows of JSON in which a mapped column must occur at least once.
LOOKED_AT = 64


@dataclass(frozen=True)
class Table:
    """Rows by name. Make one with `open_table`.

    Attributes:
        fields: fields of the reader; other columns of Parquet are not read. Empty: all.
    """

    name: str
    files: tuple[Path, ...]
    columns: Columns = ()
    fields: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows with mapped columns; ``share`` refers to all files.

        Raises:
            InputError: a file cannot be read, or lacks a column of the map.
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
        return (replace(row, value=self._mapped(row.value)) for row in chain(first, rows))

    def _mapped(self, record: Any) -> Any:
        """Return a record with the names of the reader's fields; other values than objects stay unchanged."""
        if not isinstance(record, dict):
            return record
        found = {name: value for name, path in self.columns if (value := value_at(record, path)) is not _ABSENT}
        taken = {name for name, _ in self.columns} | {path for _, path in self.columns}
        value = {**found, **{name: value for name, value in record.items() if name not in taken}}
        return {name: item for name, item in value.items() if not self.fields or name in self.fields}

    def _check_columns(self, path: Path, records: Sequence[Mapping[str, object]]) -> None:
        """Reject a column of the map that none of the first rows has: most likely a typing error."""
        if path.suffix == ".parquet" or not records:
            return  # checked in its schema
        for name, column in self.columns:
            if all(value_at(record, column) is _ABSENT for record in records):
                raise unknown_column(path, name, column, dict.fromkeys(key for record in records for key in record))


def open_table(
    name: str | Path, columns: Mapping[str, str] | None = None, fields: Sequence[str] = (), key: str = "columns"
) -> Table:
    """Find the files of a table without reading them.

    Args:
        columns: field of the reader -> column, or a path in one (``extra_info.answer``).
        fields: fields of the reader; empty: all columns.
        key: name of ``columns`` in messages, such as ``env.columns``.

    Raises:
        InputError: nothing is there, or the map has a field that the reader does not have.
    """
    given = columns or {}
    for field in given:
        if fields and field not in fields:
            raise InputError(f"{key}: nothing called '{field}' is read here: {nearest(field, fields)}")
    return Table(str(name), table_files(str(name)), tuple(given.items()), tuple(fields))


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
    hint = similar_file(path)
    raise InputError(f"{path}: no such file or folder{hint and f'; {hint}'}")


def fingerprint(paths: Sequence[Path]) -> str:
    """Return paths, sizes and times of files, which identify their content without reading it.

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


# --- JSON lists and objects, value by value, in bounded memory: WebShop's full catalogue is one list of 5 GB ----------

CHUNK = 1 << 20
CUT_OFF = "is the download complete?"
#: Maximum length of a value, in characters.
MAX_VALUE = 1 << 26
_SPACE = " \t\n\r"
_DECODER = json.JSONDecoder()


class JsonStream:
    """Iterates over ``(key, value)`` of a JSON file whose top level is an object, or ``("", value)`` of a list.

    Args:
        strict: reject text that is not UTF-8, and yield a `ValueError` for a value that `rl_agents.tools.strict_json`
            forbids (a key twice, NaN, nesting, lone surrogates).

    Attributes:
        position: number of characters read so far.
        line: line on which the last value began, from 1.

    Raises (while iterating):
        InputError: not such a file; a value that is neither an object nor a list, or longer than ``MAX_VALUE``.
    """

    def __init__(self, path: Path, strict: bool = False) -> None:
        self.path = path
        self.position = 0
        self.line = 1
        self._strict = strict
        self._counted = 0
        self._buffer = ""
        self._start = 0
        self._ended = False

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        try:
            errors = "strict" if self._strict else "replace"
            with self.path.open(encoding="utf-8-sig", errors=errors, newline="") as file:
                yield from self._values(file)
        except UnicodeDecodeError as error:
            raise InputError(f"{self.path}: not UTF-8 (byte 0x{error.object[error.start]:02x})") from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from error

    def _values(self, file: TextIO) -> Iterator[tuple[str, Any]]:
        opening = self._symbol(file)
        if opening not in ("[", "{"):
            raise self._error("neither a JSON list nor a JSON object")
        closing = "]" if opening == "[" else "}"
        self._start += 1
        symbol = self._symbol(file)
        while symbol != closing:
            key = ""
            if opening == "{":
                key = self._value(file, ('"',))
                if self._symbol(file) != ":":
                    raise self._error("':' is missing after a key")
                self._start += 1
            yield key, self._value(file, ("{", "["))
            symbol = self._symbol(file)
            if symbol == ",":
                self._start += 1
                symbol = self._symbol(file)
            elif symbol != closing:
                raise self._error(f"',' or '{closing}' is missing after a value")

    def _symbol(self, file: TextIO) -> str:
        """Skip white space and return the next character without consuming it; empty at the end of the file."""
        while True:
            while self._start < len(self._buffer) and self._buffer[self._start] in _SPACE:
                self._start += 1
            if self._start < len(self._buffer):
                return self._buffer[self._start]
            if not self._read(file, CHUNK):
                return ""

    def _value(self, file: TextIO, openings: tuple[str, ...]) -> Any:
        """Decode the next value; it must begin with one of ``openings``, so that its end can be found."""
        if self._symbol(file) not in openings:
            raise self._error("a value of an unexpected type")
        self.line += self._buffer.count("\n", self._counted, self._start)
        self._counted = self._start
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._start)
                value = self._checked() if self._strict else value
                self._start = end
                return value
            except (json.JSONDecodeError, RecursionError) as error:
                pending = len(self._buffer) - self._start
                # Doubling keeps the work for a long value linear in its length.
                if pending > MAX_VALUE or not self._read(file, max(CHUNK, pending)):
                    raise self._error(f"a value cannot be read ({_reason(error)})") from None

    def _checked(self) -> Any:
        try:
            value, _ = DECODER_OF_TABLES.raw_decode(self._buffer, self._start)
            check_plain(value)
        except (ValueError, RecursionError) as error:
            return ValueError(str(error)) if isinstance(error, ValueError) else error
        return value

    def _read(self, file: TextIO, size: int) -> bool:
        chunk = "" if self._ended else file.read(size)
        self._ended = not chunk
        self.position += len(chunk)
        self.line += self._buffer.count("\n", self._counted, self._start)
        self._counted = 0
        self._buffer = self._buffer[self._start :] + chunk
        self._start = 0
        return bool(chunk)

    def _error(self, problem: str) -> InputError:
        if self._ended and self._start >= len(self._buffer):
            return InputError(f"{self.path}: it ends in the middle, at character {self.position}: {CUT_OFF}")
        place = self.position - len(self._buffer) + self._start
        return InputError(f"{self.path}: {problem}, near character {place}")


def _reason(error: json.JSONDecodeError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    cut = error.msg.startswith("Unterminated") or error.pos >= len(error.doc.rstrip())
    return f"it ends in the middle: {CUT_OFF}" if cut else error.msg
