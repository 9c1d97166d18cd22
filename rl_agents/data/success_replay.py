"""Solved episodes of the last iterations, which later iterations replay.

They keep exact ids, masks, the engine's log-probabilities and the versions of the weights that sampled. The number of
iterations and of episodes is limited, and nothing here is random.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class SolvedEpisode:
    """An episode that was trained on.

    Attributes:
        iteration: the first one that trained on it.
        session: its name in the run's trajectory store; empty: it is in none.
        trajectory: without facts and metrics, which training does not read.
    """

    iteration: int
    session: str
    trajectory: Trajectory


class SolvedEpisodes:
    """The newest solved episodes.

    Args:
        iterations: number of iterations for which an episode is replayed; 0: none is kept.
        most: number of episodes to keep; the oldest are forgotten first.
    """

    def __init__(self, iterations: int, most: int) -> None:
        self.iterations, self.most = iterations, most
        self._kept: list[SolvedEpisode] = []  # oldest first

    def again(self, iteration: int) -> list[SolvedEpisode]:
        """Return the episodes that ``iteration`` replays, the oldest first."""
        return [kept for kept in self._kept if iteration - self.iterations <= kept.iteration < iteration]

    def keep(self, iteration: int, episodes: Iterable[tuple[str, Trajectory]]) -> None:
        """Remember the solved ones of the episodes that ``iteration`` trained on.

        Args:
            episodes: session names and trajectories, in order.
        """
        if not self.iterations:
            return
        solved = [
            SolvedEpisode(iteration, session, dataclasses.replace(trajectory, facts={}, metrics={}))
            for session, trajectory in episodes
            if trajectory.success and trajectory.steps and not trajectory.failed
        ]
        self._kept = [*self.again(iteration + 1), *solved][-self.most :]

    def disown(self) -> None:
        """Forget the session names: they belong to another run's store."""
        self._kept = [dataclasses.replace(kept, session="") for kept in self._kept]

    def to_json(self) -> list[dict[str, Any]]:
        return [
            {"iteration": kept.iteration, "session": kept.session, "trajectory": kept.trajectory.to_json()}
            for kept in self._kept
        ]

    def load_json(self, data: Sequence[Mapping[str, Any]]) -> None:
        """Replace the state by what `to_json` returned; nothing is kept if the run was resumed without replay."""
        found = [
            SolvedEpisode(int(one["iteration"]), str(one["session"]), Trajectory.from_json(one["trajectory"]))
            for one in data
        ]
        self._kept = found if self.iterations else []
