"""Solved episodes of the last iterations, learned from again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from benchmarks.exact_worlds.critics import ChainCritic
from benchmarks.exact_worlds.walks import Sampler, Steps
from benchmarks.exact_worlds.world import World
from rl_agents.advantages.gae import gains
from rl_agents.advantages.statistics import FloatArray, IntArray

#: Iterations for which an episode is learned from again.
WINDOW = 4
#: Beyond 1 + CLIP a ratio has no gradient; a truncated one weighs CAP at most.
CLIP, CAP = 0.2, 2.0


@dataclass
class Solved:
    """The solved episodes of all runs, and how they are learned from.

    Attributes:
        weight: of their steps, beside 1 of new ones.
        bounded: the newest alone, at most as many as the batch has of its own.
        ratio: of the policy to the one that sampled: ``none``: not modelled;  ``clip``: PPO's surrogate (as in the
            product);  ``truncate``: the ratio, at most `CAP`, as a weight.
    """

    weight: float
    bounded: bool = False
    ratio: Literal["none", "clip", "truncate"] = "none"
    _kept: list[tuple[Steps, FloatArray]] = field(default_factory=list)

    def again(self, world: World, sampler: Sampler, critic: ChainCritic, own: Steps) -> tuple[Steps, FloatArray]:
        """Return their steps, the oldest first, and max(0, γ^(steps left) - V(s)) of each, times the ratio's factor."""
        old = Steps.joined([steps for steps, _ in self._kept])
        chance = np.concatenate([np.zeros(0), *(chance for _, chance in self._kept)])
        if self.bounded and len(old):
            which = _newest(old, np.bincount(own.run[own.following < 0], minlength=len(critic.counts)))
            old, chance = old.taken(which), chance[which]
        old.reach = np.full(len(old), self.weight)
        gained = gains(
            old.solved(world), critic.values(old.run, old.state), old.following,
            gamma=critic.gamma, final_values=np.zeros(len(old)),
        )  # fmt: skip
        ratio = sampler.chosen[old.run, old.state, old.action] / chance
        if self.ratio == "clip":
            gained = gained * np.where(ratio < 1 + CLIP, ratio, 0.0)
        elif self.ratio == "truncate":
            gained = gained * np.minimum(ratio, CAP)
        return old, gained

    def keep(self, world: World, sampler: Sampler, own: Steps) -> None:
        """Remember the solved ones of a batch's own episodes, with the chances of their actions."""
        won = own.solved(world)[own.following < 0]
        solved = own.taken(won[_episodes(own)])
        self._kept.append((solved, sampler.chosen[solved.run, solved.state, solved.action]))
        del self._kept[:-WINDOW]


def _episodes(steps: Steps) -> IntArray:
    """Number of each step's episode among these steps."""
    return np.asarray(np.cumsum(np.append(0, steps.following < 0))[:-1])


def _newest(old: Steps, most: IntArray) -> np.ndarray:
    """Which steps are of each run's newest ``most`` episodes."""
    runs = old.run[old.following < 0][::-1]  # newest first
    later = np.array([int((runs[:place] == run).sum()) for place, run in enumerate(runs)])
    return np.asarray((later < most[runs])[::-1][_episodes(old)])
