"""Reading files of expert traces: JSON lines, one JSON list, or a pool. Every defect is named with file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError
from rl_agents.tools.calls import Tool, read_tools
from rl_agents.tools.strict_json import DECODER, check_plain, check_text_file, strict_json
from rl_agents.traces.formats import Trace, read_trace
from rl_agents.traces.pools import pool_in, pool_records

MAX_LINE_BYTES = 16 << 20
MAX_LIST_BYTES = 1 << 30
_BOM = b"\xef\xbb\xbf"


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


def read_traces(path: Path, tools: Sequence[Tool] = ()) -> TraceFile:
    """Read all traces of a file; see `rl_agents.traces.formats` for the forms, which may be mixed.

    Args:
        tools: definitions for traces that have none.

    Raises:
        InputError: the file is missing, cannot be read at all, or holds nothing.
    """
    traces: list[Trace] = []
    defects: list[Defect] = []
    for line, record in _records(Path(path)):
        source = f"{path}:{line}"
        try:
            if isinstance(record, ValueError):
                raise record
            traces.append(read_trace(record, source, tools))
        except ValueError as error:
            defects.append(Defect(source, str(error)))
    if not traces and not defects:
        raise InputError(f"{path}: no traces in it")
    return TraceFile(tuple(traces), tuple(defects))


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


def _records(path: Path) -> Iterator[tuple[int | str, Any]]:
    """Yield (line or session, JSON value or the `ValueError` in its place)."""
    if (pool := pool_in(path)) is not None:
        yield from pool_records(pool)
        return
    try:
        with path.open("rb") as file:
            start = file.read(64)
        check_text_file(start)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if start.removeprefix(_BOM).lstrip()[:1] == b"[":
        yield from _list_records(path)
    else:
        yield from _line_records(path)


def _line_records(path: Path) -> Iterator[tuple[int, Any]]:
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(raw) > MAX_LINE_BYTES:
                yield number, ValueError(f"a line of more than {MAX_LINE_BYTES >> 20} MiB")
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(MAX_LINE_BYTES)
            elif raw.strip():
                yield number, _parsed(raw.removeprefix(_BOM) if number == 1 else raw)


def _parsed(raw: bytes) -> Any:
    try:
        return strict_json(raw.decode().strip())
    except UnicodeDecodeError as error:
        return ValueError(f"not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1})")
    except ValueError as error:
        return error


def _list_records(path: Path) -> Iterator[tuple[int, Any]]:
    """Read a JSON list item by item. What follows broken syntax cannot be told apart, so reading ends there."""
    if path.stat().st_size > MAX_LIST_BYTES:
        raise InputError(f"{path}: a JSON list of more than {MAX_LIST_BYTES >> 30} GiB; write JSON lines")
    raw = path.read_bytes().removeprefix(_BOM)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 (byte 0x{raw[error.start]:02x})") from None
    position, line, counted = _skip_blanks(text, text.index("[") + 1), 1, 0
    while text[position : position + 1] not in ("]", ""):
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, end = DECODER.raw_decode(text, position)
            check_plain(value)
            yield line, value
        except json.JSONDecodeError as error:
            yield error.lineno, ValueError(f"not JSON: {error.msg} (column {error.colno}); the rest is not read")
            return
        except RecursionError:
            yield line, ValueError("JSON nested too deep; the rest is not read")
            return
        except ValueError as error:
            yield line, error
            try:
                end = json.JSONDecoder().raw_decode(text, position)[1]
            except ValueError:
                return
        position = _skip_blanks(text, end)
        if text[position : position + 1] == ",":
            position = _skip_blanks(text, position + 1)
    if text[position : position + 1] == "":
        yield text.count("\n") + 1, ValueError("the list does not end: ] is missing")


def _skip_blanks(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\n", "\r") and position < len(text):
        position += 1
    return position
