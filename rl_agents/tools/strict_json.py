"""JSON from models and files, strictly: no duplicate keys, no NaN, no lone surrogates, bounded depth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from rl_agents.errors import InputError

MAX_DEPTH = 64
#: First bytes of files of other kinds.
_MAGIC = {b"\x1f\x8b": "a gzip archive", b"PK\x03\x04": "a zip archive"}


def check_text_file(start: bytes) -> None:
    """Raise `ValueError` for the first bytes of an archive."""
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            raise ValueError(f"{kind}, not JSON or JSONL; unpack it first")


class WrittenFloat(float):
    """A fraction of JSON that keeps its text, such as ``1.50``."""

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number

    text: str


def written(value: Any) -> Any:
    """Return a number as text, a fraction of a `DECODER_OF_TABLES` as it is written; anything else unchanged."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return value.text if isinstance(value, WrittenFloat) else str(value)


def json_type(value: Any) -> type:
    """Return the type of a JSON value, which of a `WrittenFloat` is float."""
    return float if isinstance(value, WrittenFloat) else type(value)


def strict_json(text: str, decoder: json.JSONDecoder | None = None) -> Any:
    """Parse ``text``, by default with `DECODER`.

    Raises:
        ValueError: the first problem in one line, with the column of a syntax error.
    """
    value = _decoded(text, decoder or DECODER)
    check_plain(value)
    return value


def _decoded(text: str, decoder: json.JSONDecoder) -> Any:
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"not JSON: {error.msg} ({place})") from None
    except RecursionError:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels") from None


def read_json_file(path: Path, most_bytes: int, strict: bool = True) -> Any:
    """Read a file of one JSON value.

    Args:
        strict: check it as `strict_json` does; otherwise only its syntax, which is faster for large files.

    Raises:
        InputError: no such file, more than ``most_bytes`` bytes, not UTF-8, or not JSON.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(most_bytes + 1)
        if len(raw) > most_bytes:
            raise ValueError(f"larger than {most_bytes} bytes")
        return strict_json(raw.decode()) if strict else _decoded(raw.decode(), json.JSONDecoder())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def check_plain(value: Any, depth: int = 0) -> None:
    """Raise `ValueError` for nesting beyond `MAX_DEPTH` or text that UTF-8 cannot encode."""
    if depth > MAX_DEPTH:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"text with a lone surrogate: {value[:40]!a}") from None
    elif isinstance(value, dict):
        for name, item in value.items():
            check_plain(name, depth)
            check_plain(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            check_plain(item, depth + 1)


def canonical(value: Any) -> str:
    """Return the canonical text of a JSON value: sorted keys, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key '{next(name for name in names if names.count(name) > 1)}' occurs twice")
    return found


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


#: ``DECODER.raw_decode(text, position)`` reads one of several values.
DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_constant=_no_constants)
DECODER_OF_TABLES = json.JSONDecoder(
    object_pairs_hook=_unique_keys, parse_constant=_no_constants, parse_float=WrittenFloat
)
