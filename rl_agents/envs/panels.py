"""Frozen task panels: files of task ids with their hashes, so that every machine plays the same tasks.

A panel is a JSON file ``{"seed": ..., "sha256": {split: digest}, split: [ids], ...}``. Its splits never depend on the
order of a directory or on a library's random generator.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError, unknown

Panel = Mapping[str, tuple[str, ...]]


def ids_digest(ids: Iterable[str]) -> str:
    """Return the sha256 of the ids, one a line, in the given order."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def shuffled_ids(ids: Iterable[str], seed: str) -> list[str]:
    """Return the ids in the order of ``sha256(seed + "/" + id)``: random, and the same everywhere."""
    return sorted(ids, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())


def split_panel(ids: Iterable[str], seed: str, test_tasks: int) -> dict[str, Any]:
    """Split ``ids`` at random into ``test`` and ``train`` and return the panel as it is stored."""
    shuffled = shuffled_ids(ids, seed)
    return make_panel(seed, {"train": sorted(shuffled[test_tasks:]), "test": sorted(shuffled[:test_tasks])})


def make_panel(seed: str, splits: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the panel of given splits as it is stored."""
    return {"seed": seed, "sha256": {name: ids_digest(ids) for name, ids in splits.items()}, **splits}


def held_out(ids: Sequence[str], seed: str, share: float = 0.1, most: int = 500) -> dict[str, tuple[str, ...]]:
    """Split ids that nobody has split: ``share`` of them, from 1 to ``most``, are tests. A single one is both."""
    tests = set(shuffled_ids(ids, seed)[: min(max(round(len(ids) * share), 1), most)])
    train = tuple(name for name in ids if name not in tests)
    return {"train": train or tuple(ids), "test": tuple(name for name in ids if name in tests)}


def write_panel(path: Path, panel: Mapping[str, Any]) -> None:
    """Write a panel file, one id a line."""
    path.write_text(json.dumps(panel, indent=0) + "\n", encoding="utf-8")


@cache
def load_panel(path: Path) -> Panel:
    """Return the ids of every split of a panel file.

    Raises:
        InputError: the ids of a split do not match its hash.
    """
    stored = json.loads(path.read_text(encoding="utf-8"))
    for split, digest in stored["sha256"].items():
        if ids_digest(stored[split]) != digest:
            raise InputError(f"{path.name}: the {split} tasks do not match their sha256; restore the file")
    return {split: tuple(stored[split]) for split in stored["sha256"]}


def check_split(split: str, panel: Panel) -> None:
    """Raise `InputError` for a split that the panel does not have."""
    if split not in panel:
        raise unknown("split", split, list(panel))


def unknown_task(env: str, task_id: str, tasks: Iterable[str], form: str) -> InputError:
    """Return the error for a task id that does not exist: it offers the nearest, else the ``form`` of an id."""
    close = difflib.get_close_matches(task_id, list(tasks), n=1, cutoff=0.5)
    return unknown(f"{env} task", task_id, close or [form])
