"""Puzzles from a folder in AR-Bench's format: ``train.json`` and ``test.json`` (or other tables), each of records.

A record has ``surface`` and ``bottom`` (text) and a ``story_tree`` of nodes with ``children`` and, below the root,
``key_question``. We ship no such data: AR-Bench has no license.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.hub import PREFIX
from rl_agents.data.tables import Table, open_table
from rl_agents.envs.situation_puzzles.rules import Puzzle
from rl_agents.errors import InputError, unknown

SPLITS = ("train", "test")
MAX_TEXT = 20_000
MAX_NODES = 1000


def read_split(folder: str, split: str, bad_data: str) -> Mapping[str, Puzzle]:
    """Return the puzzles of one split by id, such as ``train/0007``: the record's place in the file.

    Args:
        folder: folder with the files.
        split: ``train`` or ``test``.
        bad_data: a bad record is an ``error``, or is left out: ``skip``.

    Raises:
        InputError: no such folder or split, what cannot be read, a bad record, or none that is good.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    try:
        table = open_table(f"{folder}/{split}")
    except InputError as error:
        there = Path(folder).is_dir() or folder.startswith(PREFIX)
        raise InputError(f"env.data={error}" if there else f"env.data={folder}: no such folder") from None
    return _read(table, split, bad_data, table.version())


@lru_cache(maxsize=8)  # every environment asks; a file that changed is read again
def _read(table: Table, split: str, bad_data: str, version: str) -> Mapping[str, Puzzle]:
    found: dict[str, Puzzle] = {}
    for index, row in enumerate(table):
        try:
            found[f"{split}/{index:04d}"] = _puzzle(f"{split}/{index:04d}", row.record())
        except ValueError as error:
            if bad_data == "error":
                raise InputError(f"{row.place}: {error}; env.bad_data=skip leaves such records out") from None
    if not found:
        raise InputError(f"{table.name}: no usable puzzle in it")
    return found


def _puzzle(puzzle_id: str, record: Any) -> Puzzle:
    if not isinstance(record, dict):
        raise InputError(f"is a {type(record).__name__}, not an object")
    surface, bottom = _text(record, "surface"), _text(record, "bottom")
    questions = key_questions(record.get("story_tree"))
    if not questions:
        raise InputError("its story_tree has no key_question")
    return Puzzle(puzzle_id, surface, bottom, key_questions=questions)


def _text(record: Mapping[str, Any], key: str) -> str:
    if key not in record:
        raise InputError(f"has no '{key}'")
    value = record[key]
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_TEXT:
        raise InputError(f"'{key}' is no text of 1 to {MAX_TEXT} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"'{key}' is no valid Unicode") from None
    return value


def key_questions(tree: Any) -> tuple[str, ...]:
    """Return the key questions of a story tree, each node before its children.

    Raises:
        InputError: it is no tree of objects with lists of ``children``, or has more than `MAX_NODES` nodes.
    """
    found: list[str] = []
    waiting, nodes = [tree], 0
    while waiting:
        node, nodes = waiting.pop(), nodes + 1
        if not isinstance(node, dict) or not isinstance(node.get("children", []), list) or nodes > MAX_NODES:
            raise InputError(f"its 'story_tree' is no tree of at most {MAX_NODES} nodes with 'children'")
        if node.get("key_question"):
            found.append(_text(node, "key_question"))
        waiting.extend(reversed(node.get("children", [])))
    return tuple(found)
