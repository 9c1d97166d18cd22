"""Puzzles from a folder in AR-Bench's format: ``train.json`` and ``test.json``, each a list of records.

A record has ``surface`` and ``bottom`` (text) and a ``story_tree`` of nodes with ``children`` and, below the root,
``key_question``. We ship no such data: AR-Bench has no licence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.situation_puzzles.rules import Puzzle
from rl_agents.errors import InputError, unknown

SPLITS = ("train", "test")
MAX_FILE_BYTES = 1 << 26
MAX_TEXT = 20_000
MAX_NODES = 1000


def read_split(folder: str, split: str, bad_data: str) -> Mapping[str, Puzzle]:
    """Return the puzzles of one split by id, such as ``train/0007``: the record's place in the file.

    Args:
        folder: folder with the files.
        split: ``train`` or ``test``.
        bad_data: a bad record is an ``error``, or is left out: ``skip``.

    Raises:
        InputError: no such folder or file, no JSON, a bad record, or none that is good.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    path = Path(folder) / f"{split}.json"
    try:
        stamp = path.stat()
    except OSError as error:
        where = f"no {path.name} in it" if Path(folder).is_dir() else "no such folder"
        raise InputError(f"env.data={folder}: {where} ({error.strerror})") from None
    return _read(path, split, bad_data, stamp.st_mtime_ns, stamp.st_size)


@lru_cache(maxsize=8)  # every environment asks; a file that changed is read again
def _read(path: Path, split: str, bad_data: str, changed: int, size: int) -> Mapping[str, Puzzle]:
    if size > MAX_FILE_BYTES:
        raise InputError(f"{path}: {size} bytes; at most {MAX_FILE_BYTES} are read")
    records = _json(path)
    if not isinstance(records, list):
        raise InputError(f"{path}: holds a JSON {type(records).__name__}, not a list of puzzles")
    found: dict[str, Puzzle] = {}
    for index, record in enumerate(records):
        try:
            found[f"{split}/{index:04d}"] = _puzzle(f"{split}/{index:04d}", record)
        except InputError as error:
            if bad_data == "error":
                raise InputError(
                    f"{path}: record {index}: {error}; env.bad_data=skip leaves such records out"
                ) from None
    if not found:
        raise InputError(f"{path}: no usable puzzle in it")
    return found


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from None
    except (UnicodeDecodeError, RecursionError, OSError) as error:
        raise InputError(f"{path}: cannot be read ({type(error).__name__})") from None


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
