"""Rewards of finished episodes, which the driver computes between rollout and advantages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from rl_agents import plugins
from rl_agents.background import abandon_if_blocked, begin, settled
from rl_agents.config import Settings
from rl_agents.data.tasks import by_environment
from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import described, number_from, report_once, unknown
from rl_agents.rewards.prs import ProgressiveReward
from rl_agents.time_limits import CallTimeout, call_anywhere, no_answer


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


@dataclass(frozen=True)
class RewardOfEach(Reward):
    """The rewards of several environments."""

    own: Mapping[str, Reward]

    @property
    def waits(self) -> bool:
        return any(reward.waits for reward in self.own.values())

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        for name, played in by_environment(self.own, trajectories).items():
            self.own[name].apply(played)
        return self.metrics(trajectories)

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        shares = by_environment(self.own, trajectories).items()
        return {f"{t}/{name}": value for name, own in shares if own for t, value in self.own[name].metrics(own).items()}


#: Scores an episode, or returns a coroutine that does.
Scoring = Callable[[Trajectory], Any]


#: Calls in a row that reach the time limit before the other episodes of a batch are given up.
MAX_HANGS = 3


@dataclass(frozen=True)
class ScoredReward(EnvironmentReward):
    """A function as a reward (`reward`): its score is the episode's whole return, earned by the last step.

    Attributes:
        timeout_s: a call may take so long. Coroutines may queue for a server, so they all end if none of them has
            returned a score for that long. 0: no limit.
    """

    name: str
    score: Scoring
    waits: bool
    timeout_s: float = 0.0

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        played = [trajectory for trajectory in trajectories if trajectory.steps and not trajectory.failed]
        for trajectory, answer in (self._concurrently if self.waits else self._in_turn)(played):
            if isinstance(answer, Exception):
                trajectory.failed, trajectory.end_cause = True, f"judge_error: reward {self.name}: {described(answer)}"
                continue
            trajectory.facts["environment_return"] = trajectory.episode_return
            for step in trajectory.steps:
                step.reward = 0.0
            trajectory.steps[-1].reward = answer
        return self.metrics(trajectories)

    def _in_turn(self, played: Sequence[Trajectory]) -> Iterator[tuple[Trajectory, float | Exception]]:
        hangs = 0
        for trajectory in played:
            try:
                if hangs < MAX_HANGS:
                    answer: float | Exception = call_anywhere(self.timeout_s, self._scored, trajectory)
                    hangs = 0
            except CallTimeout:
                answer, hangs = self._late(), hangs + 1
            except Exception as error:
                answer, hangs = error, 0
            yield trajectory, answer

    def _concurrently(self, played: Sequence[Trajectory]) -> Iterator[tuple[Trajectory, float | Exception]]:
        done: SimpleQueue[Future[float]] = SimpleQueue()
        pending = {begin(self._awaited(trajectory)): trajectory for trajectory in played}
        for future in pending:
            future.add_done_callback(done.put)
        try:
            while pending:
                future = done.get(timeout=self.timeout_s or None)
                try:
                    answer: float | Exception = future.result()
                except Exception as error:
                    answer = error
                yield pending.pop(future), answer
        except Empty:
            late = self._late()
            yield from ((trajectory, late) for trajectory in pending.values())
            abandon_if_blocked()
        finally:
            for future in pending:
                future.cancel()

    def _scored(self, trajectory: Trajectory) -> float:
        answer = self.score(_copy(trajectory))  # a coroutine of a plain function, such as a decorator's, perhaps
        return number_from(self.score, settled(answer))

    async def _awaited(self, trajectory: Trajectory) -> float:
        return number_from(self.score, await self.score(_copy(trajectory)))

    def _late(self) -> TimeoutError:
        late = no_answer(self.score, self.timeout_s, "reward_timeout_s")
        report_once(f"reward {self.name}: {late}; such episodes fail")
        return late


def _copy(trajectory: Trajectory) -> Trajectory:
    """Return a copy for a user's function: what it assigns must not change what the run reports."""
    return replace(trajectory, steps=[replace(step) for step in trajectory.steps])


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

    def build(score: Scoring, settings: Settings) -> ScoredReward:
        return ScoredReward(name, score, inspect.iscoroutinefunction(score), settings.reward_timeout_s)

    return plugins.decorator("reward", REWARDS, name, summary, build)


def make_reward(settings: Settings) -> Reward:
    """Build the reward of the key ``reward``.

    Raises:
        InputError: an unknown name (the nearest is offered), or the judge's API key is not set.
    """
    if settings.parts:
        return RewardOfEach({name: make_reward(own) for name, own in settings.parts.items()})
    if settings.reward not in REWARDS:
        raise unknown("reward", settings.reward, REWARDS)
    built: Reward = REWARDS[settings.reward].build(settings)
    return built
