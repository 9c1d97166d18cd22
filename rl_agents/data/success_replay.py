"""Solved episodes of the last iterations, which later ones train on again.

What a row needs travels with them as it was: exact ids, masks, the engine's log-probabilities and the versions of the
weights that sampled. The size is bounded twice, by iterations and by episodes, and nothing here is random.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Remembered:
    """An episode that was trained on.

    Attributes:
        iteration: the first one that trained on it.
        session: its name in the run's pool; empty: it is in none.
        trajectory: without facts and metrics, which no learning reads.
    """

    iteration: int
    session: str
    trajectory: Trajectory


class SolvedEpisodes:
    """The newest solved episodes.

    Args:
        iterations: for which an episode is trained on again; 0: none is kept.
        most: episodes that are kept; beyond, the oldest are forgotten.
    """

    def __init__(self, iterations: int, most: int) -> None:
        self.iterations, self.most = iterations, most
        self._kept: list[Remembered] = []  # oldest first

    def again(self, iteration: int) -> list[Remembered]:
        """Return what ``iteration`` trains on again, the oldest first."""
        return [kept for kept in self._kept if iteration - self.iterations <= kept.iteration < iteration]

    def keep(self, iteration: int, played: Iterable[tuple[str, Trajectory]]) -> None:
        """Remember the solved ones of the episodes that ``iteration`` trained on.

        Args:
            played: with their sessions, in order.
        """
        if not self.iterations:
            return
        solved = [
            Remembered(iteration, session, dataclasses.replace(trajectory, facts={}, metrics={}))
            for session, trajectory in played
            if trajectory.success and trajectory.steps and not trajectory.failed
        ]
        self._kept = [*self.again(iteration + 1), *solved][-self.most :]

    def disown(self) -> None:
        """Forget the sessions' names: they are those of another run's pool."""
        self._kept = [dataclasses.replace(kept, session="") for kept in self._kept]

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"iteration": kept.iteration, "session": kept.session, "trajectory": kept.trajectory.to_json()}
            for kept in self._kept
        ]

    def load_json(self, data: Sequence[Mapping[str, Any]]) -> None:
        """Replace everything by what `to_json` returned; of a run that was resumed without it nothing is kept."""
        found = [
            Remembered(int(one["iteration"]), str(one["session"]), Trajectory.from_json(one["trajectory"]))
            for one in data
        ]
        self._kept = found if self.iterations else []
