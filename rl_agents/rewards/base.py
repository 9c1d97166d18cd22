"""Rewards of finished episodes, which the driver computes between rollout and advantages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from rl_agents import plugins
from rl_agents.background import at_once, together, wait
from rl_agents.config import Settings
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import described, number_from, unknown
from rl_agents.rewards.prs import ProgressiveReward


class Reward(Protocol):
    """Scores the episodes of a training iteration, but not those of an evaluation.

    The score of an episode does not depend on the others. May be called from several threads.
    """

    @property
    def waits(self) -> bool:
        """Whether scoring takes long because a server or a person is asked."""

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Rewrite the step rewards in place and return `metrics`.

        An episode that cannot be scored becomes ``failed`` with its cause and is not trained on.
        """
        return {}

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Return metrics of scored episodes, which may come from several calls of `apply`."""
        return {}


class EnvironmentReward(Reward):
    """The environment's rewards, unchanged."""

    waits = False


#: Scores an episode, or returns a coroutine that does.
Scoring = Callable[[Trajectory], Any]


@dataclass(frozen=True)
class ScoredReward(EnvironmentReward):
    """A function as a reward (`reward`): its score is the episode's whole return, earned by the last step."""

    name: str
    score: Scoring
    waits: bool

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        played = [trajectory for trajectory in trajectories if trajectory.steps and not trajectory.failed]
        if self.waits:
            wait(together(map(self._apply, played)))
        else:
            for trajectory in played:
                at_once(self._apply(trajectory))
        return self.metrics(trajectories)

    async def _apply(self, trajectory: Trajectory) -> None:
        try:
            # Copies: another success, or rewards of steps, that it assigns would change what the run reports.
            answer = self.score(replace(trajectory, steps=[replace(step) for step in trajectory.steps]))
            if inspect.iscoroutine(answer):  # of a plain function, such as a decorator's, if that was not known
                answer = await answer if self.waits else wait(answer)
            score = number_from(self.score, answer)
        except Exception as error:
            trajectory.failed, trajectory.end_cause = True, f"judge_error: reward {self.name}: {described(error)}"
            return
        trajectory.facts["environment_return"] = trajectory.episode_return
        for step in trajectory.steps:
            step.reward = 0.0
        trajectory.steps[-1].reward = score


REWARDS: dict[str, plugins.Entry] = {
    entry.name: entry
    for entry in (
        plugins.Entry("environment", "the environment's rewards", "-", lambda settings: EnvironmentReward()),
        plugins.Entry("prs", "progressive reward shaping", "docs/algorithms/prs.md", ProgressiveReward.from_settings),
    )
}


#: Add a plugin's entry; raises `InputError` if its name is taken.
register = partial(plugins.register, "reward", REWARDS)


def reward(name: str, summary: str) -> Callable[[Scoring], Scoring]:
    """Decorate a function that scores one finished episode: ``reward=name`` trains on its score (`ScoredReward`)."""

    def registered(score: Scoring) -> Scoring:
        made = ScoredReward(name, score, waits=inspect.iscoroutinefunction(score))
        register(plugins.Entry(name, summary, score.__module__, lambda settings: made))
        return score

    return registered


def make_reward(settings: Settings) -> Reward:
    """Build the reward of the key ``reward``.

    Raises:
        InputError: an unknown name (the nearest is offered), or the judge's API key is not set.
    """
    if settings.reward not in REWARDS:
        raise unknown("reward", settings.reward, REWARDS)
    built: Reward = REWARDS[settings.reward].build(settings)
    return built
