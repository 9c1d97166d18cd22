"""The task sets of GuessNumbers: all 1908 tasks of the nine sub-groups, split once into 1526 train and 382 test.

A task is a code length, a number of symbols, a first guess and a secret; its id is
``<sub-group>/<first guess>/<secret>``, for example ``3-4-0-3/123/231``. The split is frozen in ``panel.json``: the
first 382 of `shuffled_ids` with its seed are the tests.

Source: T3, appendix C.1 and table 5 (the sizes; the paper's own split is not published).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rl_agents.envs.guess_numbers import GuessNumbersOptions
from rl_agents.envs.guess_numbers.rules import SUBGROUPS, SubGroup, codes, feedback
from rl_agents.envs.panels import panel_ids, unknown_task

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


def task_ids(split: str, options: GuessNumbersOptions) -> list[str]:
    """Return the frozen ``train`` or ``test`` ids."""
    return panel_ids(PANEL_FILE, split)
