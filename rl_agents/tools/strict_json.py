"""JSON from models and files, strictly: no duplicate keys, no NaN, no lone surrogates, bounded depth."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_DEPTH = 64
#: What files of other kinds begin with.
_MAGIC = {b"\x1f\x8b": "a gzip archive", b"PK\x03\x04": "a zip archive"}


def check_text_file(start: bytes) -> None:
    """Raise `ValueError` for the first bytes of a file that holds no JSON in any form."""
    for magic, kind in _MAGIC.items():
        if start.startswith(magic):
            raise ValueError(f"{kind}, not JSON or JSONL; unpack it first")


def strict_json(text: str) -> Any:
    """Parse ``text``.

    Raises:
        ValueError: the first problem in one line, with its column where the syntax is broken.
    """
    try:
        value = DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise ValueError(f"not JSON: {error.msg} ({place})") from None
    except RecursionError:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels") from None
    check_plain(value)
    return value


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
    """Return the one text of a JSON value: sorted keys, no blanks."""
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
