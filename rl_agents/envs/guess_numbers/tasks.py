"""The task sets of GuessNumbers: all 1908 tasks of the nine sub-groups, split once into 1526 train and 382 test.

A task is a code length, a number of symbols, a first guess and a secret; its id is
``<sub-group>/<first guess>/<secret>``, for example ``3-4-0-3/123/231``. The split is frozen in ``panel.json``;
``python -m rl_agents.envs.guess_numbers.tasks`` writes that file again.

Source: T3, appendix C.1 and table 5 (the sizes; the paper's own split is not published).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.guess_numbers.rules import SUBGROUPS, SubGroup, codes, feedback
from rl_agents.envs.guess_numbers.spec import GuessNumbersOptions
from rl_agents.envs.panels import check_split, load_panel, split_panel, unknown_task, write_panel
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
        raise unknown_task("guess_numbers", task_id, tasks, f"<sub-group>/<first guess>/<secret>, {next(iter(tasks))}")
    return tasks[task_id]


def frozen_panel() -> dict[str, Any]:
    """Return the panel as it is stored in ``panel.json``."""
    return split_panel(all_tasks(), SPLIT_SEED, TEST_TASKS)


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


def task_ids(split: str, options: GuessNumbersOptions) -> list[str]:
    """Return the frozen ``train`` or ``test`` ids of the chosen sub-groups."""
    check_split(split, load_panel(PANEL_FILE))
    return list(_filtered(split, frozenset(chosen_subgroups(options.subgroups))))


@lru_cache(maxsize=32)  # every environment asks
def _filtered(split: str, chosen: frozenset[str]) -> tuple[str, ...]:
    return tuple(task_id for task_id in load_panel(PANEL_FILE)[split] if task_id.split("/")[0] in chosen)


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
