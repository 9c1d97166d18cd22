"""Reading passages from tables.

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

from rl_agents.data.tables import open_table
from rl_agents.errors import InputError


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that a search finds as a whole."""

    id: str
    title: str
    text: str


def read_passages(name: str | Path) -> Iterator[tuple[Passage, float]]:
    """Yield the passages of a table (`rl_agents.data.tables`) in order, each with the share that has been read.

    Raises:
        InputError: the table or a passage in it cannot be read; file, line and reason are named.
    """
    for count, row in enumerate(open_table(name), start=1):
        try:
            yield passage_from_record(row.record(), count), row.share
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from error


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
