"""Rewards that look at finished episodes: they stand between rollout and credit, in the driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rl_agents.data.trajectory import Trajectory
from rl_agents.rewards.progressive import ProgressiveReward
from rl_agents.settings import Settings


class Reward(Protocol):
    """Scores the episodes of a training iteration; never those of an evaluation.

    Every episode is scored by itself: what comes of it does not depend on those beside it. Several threads may call.
    """

    @property
    def waits(self) -> bool:
        """Whether somebody is asked, so that scores take long."""
        ...

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Rewrite the step rewards in place and return `metrics`.

        An episode that cannot be scored is marked ``failed`` with its cause, so that it is not learned from.
        """
        ...

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Return what there is to say about episodes that are scored, which may have been at several times."""
        ...


class EnvironmentReward:
    """The rewards that the environment gave, untouched."""

    waits = False

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """See `Reward.apply`."""
        return {}

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """See `Reward.metrics`."""
        return {}


def make_reward(settings: Settings) -> Reward:
    """Build what the key ``reward`` names.

    Raises:
        InputError: the judge lacks its API key or its client.
    """
    if settings.reward == "environment":
        return EnvironmentReward()
    return ProgressiveReward.from_settings(settings)
