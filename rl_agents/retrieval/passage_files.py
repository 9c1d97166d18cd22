"""Reading passage files: JSONL, one passage a line, or one JSON list.

| form | keys of a passage |
|---|---|
| ours, BEIR's corpora | ``text``; ``title`` and ``id`` (or ``_id``) where there are any |
| the Wikipedia dumps of search agents | ``contents``: the title in quotes, a line break, the text; ``id`` |

A passage without an id is called by its place in the file, from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError
from rl_agents.retrieval.json_stream import JsonStream
from rl_agents.tools.strict_json import check_text_file, strict_json

MAX_LINE_CHARACTERS = 1 << 24


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that a search finds as a whole."""

    id: str
    title: str
    text: str


def read_passages(path: Path) -> Iterator[tuple[Passage, float]]:
    """Yield the passages of a file in its order, each with the share of the file that has been read.

    Raises:
        InputError: the file or a passage in it cannot be read; file, line and reason are named.
    """
    for count, (number, record, share) in enumerate(read_records(path), start=1):
        try:
            yield passage_from_record(record, count), share
        except ValueError as error:
            raise InputError(f"{place(path, number)}: {error}") from error


def read_records(path: Path) -> Iterator[tuple[int, Any, float]]:
    """Yield the values of a JSON list (a name that ends in ``.json``) or of the lines of a JSONL file.

    Each comes with its number for `place`, from 1 (empty lines count), and the share of the file that has been read.

    Raises:
        InputError: what cannot be read, with its place.
    """
    try:
        size = max(path.stat().st_size, 1)
        with path.open("rb") as file:
            check_text_file(file.read(8))
        if path.suffix == ".json":
            stream = JsonStream(path)
            for number, (key, value) in enumerate(stream, start=1):
                if key:
                    raise InputError(f"{path}: a JSON object, not a list; one object a line is JSONL: name it .jsonl")
                yield number, value, min(stream.position / size, 1.0)
            return
        done = 0
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_CHARACTERS), b""), start=1):
                done += len(line)
                if line.strip():
                    yield number, _parsed(line, path, number), done / size
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise error if isinstance(error, InputError) else InputError(f"{path}: {error}") from error


def place(path: Path, number: int) -> str:
    """Return how a message names record ``number`` of a file."""
    return f"{path}, {'item' if path.suffix == '.json' else 'line'} {number}"


def passage_from_record(record: Any, number: int) -> Passage:
    """Read one passage.

    Raises:
        ValueError: what is wrong with it.
    """
    if not isinstance(record, dict):
        raise ValueError(f"a passage is {type(record).__name__}, not an object")
    name = record.get("id", record.get("_id", number))
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise ValueError(f"id is {name!a}, not a text or a number")
    if "contents" in record and "text" not in record:
        title, _, text = _text(record, "contents").partition("\n")
        return Passage(str(name), title.strip().removeprefix('"').removesuffix('"'), text)
    return Passage(str(name), _text(record, "title") if "title" in record else "", _text(record, "text"))


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if key not in record:
        raise ValueError(f"no '{key}' in the passage; it has: {', '.join(map(str, list(record)[:8])) or 'nothing'}")
    if not isinstance(value, str):
        raise ValueError(f"{key} is {type(value).__name__}, not a text")
    return value


def _parsed(line: bytes, path: Path, number: int) -> Any:
    if len(line) >= MAX_LINE_CHARACTERS:
        raise InputError(f"{path}, line {number}: longer than {MAX_LINE_CHARACTERS} bytes")
    try:
        return strict_json(line.decode("utf-8"))
    except ValueError as error:
        reason = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise InputError(f"{path}, line {number}: {reason}") from error
