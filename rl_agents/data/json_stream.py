"""Reading a JSON list or object value by value, in bounded memory: the full catalogue is one list of 5 GB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rl_agents.errors import InputError
from rl_agents.tools.strict_json import DECODER, check_plain

CHUNK = 1 << 20
CUT_OFF = "is the download complete?"
#: Longest single value, in characters.
MAX_VALUE = 1 << 26
_SPACE = " \t\n\r"
_DECODER = json.JSONDecoder()


class JsonStream:
    """Iterates over ``(key, value)`` of a JSON file whose top level is an object, or ``("", value)`` of a list.

    Args:
        strict: refuse what is not UTF-8; a value with what `rl_agents.tools.strict_json` forbids (a key twice, NaN,
            nesting, lone surrogates) comes as a `ValueError`.

    Attributes:
        position: characters read so far, for progress.
        line: on which the last value began, from 1.

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
        """Skip white space and return the next character, which stays unread; empty at the end of the file."""
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
                value = self._checked(value) if self._strict else value
                self._start = end
                return value
            except (json.JSONDecodeError, RecursionError) as error:
                pending = len(self._buffer) - self._start
                # Doubling keeps the work for a long value linear in its length.
                if pending > MAX_VALUE or not self._read(file, max(CHUNK, pending)):
                    raise self._error(f"a value cannot be read ({_reason(error)})") from None

    def _checked(self, value: Any) -> Any:
        try:
            value, _ = DECODER.raw_decode(self._buffer, self._start)
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
