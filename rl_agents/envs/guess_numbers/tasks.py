"""The task sets of GuessNumbers: all 1908 tasks of the nine sub-groups, split once into 1526 train and 382 test.

A task is a code length, a number of symbols, a first guess and a secret; its id is
``<sub-group>/<first guess>/<secret>``, for example ``3-4-0-3/123/231``. The split is frozen in ``panel.json``;
``python -m rl_agents.envs.guess_numbers.tasks`` writes that file again.

Source: T3, appendix C.1 and table 5 (the sizes; the paper's own split is not published).
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.guess_numbers.rules import SUBGROUPS, SubGroup, codes, feedback
from rl_agents.errors import InputError, unknown

SPLIT_SEED = "guess_numbers-2025"
TEST_TASKS = 382
PANEL_FILE = Path(__file__).with_name("panel.json")


@dataclass(frozen=True, slots=True)
class Task:
    """One game: ``first_guess`` is made for the agent, ``secret`` is what it must find."""

    subgroup: SubGroup
    first_guess: str
    secret: str

    @property
    def task_id(self) -> str:
        """The task's name in the panel."""
        return f"{self.subgroup.name}/{self.first_guess}/{self.secret}"


def subgroup_tasks(group: SubGroup) -> list[Task]:
    """Return every (first guess, secret) pair whose feedback is the sub-group's, ascending."""
    all_codes = codes(group.a, group.b)
    pairs = ((guess, secret) for guess in all_codes for secret in all_codes)
    return [Task(group, g, s) for g, s in pairs if feedback(s, g) == (group.x0, group.y0)]


@cache
def all_tasks() -> dict[str, Task]:
    """Return the 1908 tasks by id."""
    return {task.task_id: task for group in SUBGROUPS for task in subgroup_tasks(group)}


def find_task(task_id: str) -> Task:
    """Return the task called ``task_id``.

    Raises:
        InputError: unknown id; the message offers the nearest.
    """
    tasks = all_tasks()
    if task_id not in tasks:
        close = difflib.get_close_matches(task_id, tasks, n=1, cutoff=0.5)
        raise unknown("guess_numbers task", task_id, close or ["<sub-group>/<first guess>/<secret>", next(iter(tasks))])
    return tasks[task_id]


def ids_digest(ids: Iterable[str]) -> str:
    """Return the sha256 of the ids, one a line, in the given order."""
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()


def split_panel(ids: Iterable[str], seed: str = SPLIT_SEED, test_tasks: int = TEST_TASKS) -> dict[str, Any]:
    """Split ``ids`` at random into test and train and return the panel as it is stored.

    The random order is that of ``sha256(seed + "/" + id)``: it depends on no library's generator.
    """
    shuffled = sorted(ids, key=lambda name: hashlib.sha256(f"{seed}/{name}".encode()).digest())
    test, train = sorted(shuffled[:test_tasks]), sorted(shuffled[test_tasks:])
    digests = {"train": ids_digest(train), "test": ids_digest(test)}
    return {"seed": seed, "sha256": digests, "train": train, "test": test}


@cache
def _panel() -> dict[str, tuple[str, ...]]:
    stored = json.loads(PANEL_FILE.read_text(encoding="utf-8"))
    for split, digest in stored["sha256"].items():
        if ids_digest(stored[split]) != digest:
            raise InputError(f"{PANEL_FILE.name}: the {split} tasks do not match their sha256; restore the file")
    return {split: tuple(stored[split]) for split in ("train", "test")}


def chosen_subgroups(subgroups: str | Iterable[str]) -> set[str]:
    """Read the option ``subgroups``: ``all``, or names as a comma-separated text or a list.

    Raises:
        InputError: a name that is not one of the nine, or no name at all.
    """
    valid = [group.name for group in SUBGROUPS]
    if isinstance(subgroups, str):
        subgroups = valid if subgroups.strip() == "all" else subgroups.split(",")
    chosen = {name.strip() for name in subgroups}
    for name in sorted(chosen):
        if name not in valid:
            raise unknown("sub-group", name, valid)
    if not chosen:
        raise InputError(f"no sub-group chosen: valid: all, {', '.join(valid)}")
    return chosen


def task_ids(split: str, *, subgroups: str | Iterable[str] = "all", **_: Any) -> list[str]:
    """Return the frozen ``train`` or ``test`` ids of the chosen sub-groups; other options do not matter here."""
    if split not in ("train", "test"):
        raise unknown("split", split, ["train", "test"])
    return list(_filtered(split, frozenset(chosen_subgroups(subgroups))))


@lru_cache(maxsize=32)  # every environment asks
def _filtered(split: str, chosen: frozenset[str]) -> tuple[str, ...]:
    return tuple(task_id for task_id in _panel()[split] if task_id.split("/")[0] in chosen)


if __name__ == "__main__":
    PANEL_FILE.write_text(json.dumps(split_panel(all_tasks()), indent=0) + "\n", encoding="utf-8")
