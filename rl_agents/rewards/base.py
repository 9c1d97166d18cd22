"""Rewards that look at finished episodes: they stand between rollout and credit, in the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from rl_agents import plugins
from rl_agents.config import Settings
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import unknown
from rl_agents.rewards.progressive import ProgressiveReward


class Reward(Protocol):
    """Scores the episodes of a training iteration; never those of an evaluation.

    Every episode is scored by itself: what comes of it does not depend on the others. Several threads may call.
    """

    @property
    def waits(self) -> bool:
        """Whether a server or a person is asked, so that scores take long."""

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Rewrite the step rewards in place and return `metrics`.

        An episode that cannot be scored is marked ``failed`` with its cause, so that it is not trained on.
        """

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Return what there is to say about episodes that are scored, which may have been at several times."""


class EnvironmentReward:
    """The rewards that the environment gave, untouched."""

    waits = False

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {}

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class ScoredReward:
    """What `reward` makes of a function: its score is the episode's whole return, earned by the last step.

    Attributes:
        waits: the function asks a server or a person, so that scores take long.
    """

    name: str
    score: Callable[[Trajectory], float]
    waits: bool = False

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        for trajectory in trajectories:
            if trajectory.failed or not trajectory.steps:
                continue
            try:
                score = float(self.score(trajectory))
            except Exception as error:
                trajectory.failed = True
                trajectory.end_cause = f"judge_error: reward {self.name}: {type(error).__name__}: {error}"
                continue
            trajectory.facts["environment_return"] = trajectory.episode_return
            for step in trajectory.steps:
                step.reward = 0.0
            trajectory.steps[-1].reward = score
        return self.metrics(trajectories)

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {}


@dataclass(frozen=True)
class RewardEntry:
    """A reward as `run.py list` shows it."""

    name: str
    summary: str
    reference: str
    build: Callable[[Settings], Reward]


REWARDS: dict[str, RewardEntry] = {
    entry.name: entry
    for entry in (
        RewardEntry("environment", "the rewards that the environment gave", "-", lambda settings: EnvironmentReward()),
        RewardEntry("prs", "progressive reward shaping", "docs/algorithms/prs.md", ProgressiveReward.from_settings),
    )
}


#: Adds an entry of a plugin; raises `InputError` where its name is taken.
register = partial(plugins.register, "reward", REWARDS)


def reward(
    name: str, summary: str, waits: bool = False
) -> Callable[[Callable[[Trajectory], float]], Callable[[Trajectory], float]]:
    """Decorate a function that scores one finished episode: ``reward=name`` trains on its score (`ScoredReward`)."""

    def registered(score: Callable[[Trajectory], float]) -> Callable[[Trajectory], float]:
        made = ScoredReward(name, score, waits)
        register(RewardEntry(name, summary, score.__module__, lambda settings: made))
        return score

    return registered


def make_reward(settings: Settings) -> Reward:
    """Build what the key ``reward`` names.

    Raises:
        InputError: unknown name (the nearest is named), or the judge lacks its API key or its client.
    """
    if settings.reward not in REWARDS:
        raise unknown("reward", settings.reward, REWARDS)
    return REWARDS[settings.reward].build(settings)
