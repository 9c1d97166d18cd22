"""Recent success of every task, and which tasks a curriculum draws more often."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rl_agents.data.trajectory import Trajectory

#: Number of a task's last episodes that count most.
MEMORY = 16
#: Estimated success from which on a task is retired, and one minus it: below, it counts as unsolved.
SOLVED = 0.9


@dataclass(frozen=True)
class Difficulty:
    """Recent success of the tasks that were rolled out (`task_sampling=difficulty`).

    A task's counts of solved and of all episodes fade by 1 - 1/`MEMORY` with every further episode of it. Its estimated
    success is p = (solved + m) / (episodes + 1), where m is the success of all tasks together, so that p = m for a task
    without episodes. It is drawn in proportion to p·(1 - p), the variance of its success: the learnability of
    Rutherford et al. (arXiv 2408.15099), for language models Foster et al. (arXiv 2502.12272). It is retired (weight 0)
    while p is at least `SOLVED`. One draw in 1/``uniform`` ignores the weights, so that every task is visited again.

    Attributes:
        uniform: share of draws that visit all tasks in turn.
        counts: (solved, episodes) by task.
    """

    uniform: float
    counts: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def after(self, episodes: Sequence[Trajectory]) -> Difficulty:
        """Return the state after these episodes; those that an environment or a judge failed do not count."""
        counts = dict(self.counts)
        for episode in episodes:
            if not episode.failed:
                solved, number = counts.get(episode.task_id, (0.0, 0.0))
                kept = 1 - 1 / MEMORY
                counts[episode.task_id] = (solved * kept + episode.success, number * kept + 1)
        return Difficulty(self.uniform, counts)

    def of(self, tasks: Collection[str]) -> Difficulty:
        """Return the state without other tasks."""
        known = set(tasks)
        return Difficulty(self.uniform, {task: (s, n) for task, (s, n) in self.counts.items() if task in known})

    def success(self, tasks: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the estimated success p of every task, and its number of episodes (0: never rolled out)."""
        solved, number = np.array([self.counts.get(task, (0.0, 0.0)) for task in tasks]).reshape(-1, 2).T
        mean = solved.sum() / number.sum() if number.any() else 0.5
        return (solved + mean) / (number + 1), number

    def weights(self, tasks: Sequence[str]) -> NDArray[np.float64]:
        """Return p·(1 - p) of every task; 0 if it is retired."""
        rates, number = self.success(tasks)
        return np.where((number > 0) & (rates >= SOLVED), 0.0, rates * (1 - rates))

    def metrics(self, tasks: Sequence[str]) -> dict[str, float]:
        """Return how many tasks are new, solved (retired), unsolved, and between; see docs/reference/metrics.md."""
        rates, number = self.success(tasks)
        kinds = np.select([number == 0, rates >= SOLVED, rates <= 1 - SOLVED], range(3), 3)
        names = ("new", "solved", "unsolved", "learnable")
        return {f"curriculum/{name}_tasks": float((kinds == place).sum()) for place, name in enumerate(names)}
