"""What runs remember of states: counted transitions, and averages of returns."""

from __future__ import annotations

import numpy as np

from benchmarks.exact_worlds.walks import Steps
from benchmarks.exact_worlds.world import World
from rl_agents.advantages.chain import chain_values
from rl_agents.advantages.statistics import FloatArray, IntArray


class ChainCritic:
    """The Markov chain of the steps of this and of earlier iterations, one per run (`rl_agents.advantages.chain`).

    Args:
        gamma: γ per step.
        keep: factor on the counts of earlier iterations.
        prior: k, steps that lead to an average state.

    Attributes:
        worth: V by name, [runs, names].
        counts: N(s, s') by names, [runs, names, names + 2]; the last two are the ends.
    """

    def __init__(self, world: World, runs: int, *, gamma: float, keep: float, prior: float = 1.0) -> None:
        self.world, self.gamma, self.keep, self.prior = world, gamma, keep, prior
        self.names = int(world.names.max()) + 1
        self._name = np.append(world.names, [self.names, self.names + 1])
        self.counts = np.zeros((runs, self.names, self.names + 2))
        self.worth = np.zeros((runs, self.names))

    def fade(self) -> None:
        """A new iteration begins."""
        self.counts *= self.keep

    def count(self, steps: Steps) -> None:
        """Count these steps and solve the chains. Where a horizon cut an episode, it ended unsolved."""
        after = np.where(steps.ended & ~steps.solved(self.world), self.world.won + 1, steps.after)
        place = (steps.run * self.names + self._name[steps.state]) * (self.names + 2) + self._name[after]
        self.counts += np.bincount(place, steps.reach, self.counts.size).reshape(self.counts.shape)
        run, origin, target = np.nonzero(self.counts[..., : self.names] > 1e-3)
        total = self.counts.sum(axis=-1).reshape(-1)
        there = run * self.names + target
        self.worth = chain_values(
            total, self.counts[..., self.names].reshape(-1), run * self.names + origin,
            np.where(total[there] > 0, there, -1), self.counts[run, origin, target],
            gamma=self.gamma, prior=self.prior, chain=np.repeat(np.arange(len(self.counts)), self.names),
            start=self.worth.reshape(-1),
        ).reshape(self.worth.shape)  # fmt: skip

    def values(self, run: IntArray, state: IntArray) -> FloatArray:
        """V of states [any]; of the ends 1 and 0."""
        padded = np.concatenate([self.worth, np.ones((len(self.worth), 1)), np.zeros((len(self.worth), 1))], axis=1)
        return np.asarray(padded[run, self._name[state]])

    def spread(self) -> FloatArray:
        """Deviation of what a step from a state leads to, by name, [runs, names]: σ² = Σ p·V(s')² - (Σ p·V(s'))²."""
        ends = np.concatenate([self.worth, np.ones((len(self.worth), 1)), np.zeros((len(self.worth), 1))], axis=1)
        total = np.maximum(self.counts.sum(axis=-1), 1e-9)
        mean = np.einsum("rst,rt->rs", self.counts, ends) / total
        square = np.einsum("rst,rt->rs", self.counts, ends**2) / total
        return np.asarray(np.sqrt(np.maximum(square - mean**2, 0.0)))


class Transitions:
    """What returns said beyond step GAE, by the names of a state and the next one: where V(s') leaves something out.

    b(s, s') = Σ (A^1 - A^λ)/(N(s, s') + k), over this and earlier iterations: 0 in the mean where names say all.

    Args:
        keep: factor on the sums of earlier iterations.
        prior: k, visits that said nothing.
    """

    def __init__(self, world: World, runs: int, *, keep: float, prior: float) -> None:
        self.world, self.keep, self.prior = world, keep, prior
        names = int(world.names.max()) + 1
        self._name = np.append(world.names, [names, names + 1])
        self._shape = (names, names + 2)
        self._visits, self._beyond = np.zeros((2, runs * names * (names + 2)))

    def correction(self, steps: Steps, beyond: FloatArray) -> FloatArray:
        """Count A^1 - A^λ of these steps and return b of each."""
        after = np.where(steps.ended & ~steps.solved(self.world), self.world.won + 1, steps.after)
        at = (steps.run * self._shape[0] + self._name[steps.state]) * self._shape[1] + self._name[after]
        self._visits = self.keep * self._visits + np.bincount(at, minlength=self._visits.size)
        self._beyond = self.keep * self._beyond + np.bincount(at, beyond, self._beyond.size)
        return np.asarray(self._beyond[at] / (self._visits[at] + self.prior))


class ReturnCritic:
    """V by name as a moving average of returns: what a critic network that is trained on them would know at best.

    Args:
        rate: share of a new mean of returns.
    """

    def __init__(self, world: World, runs: int, *, rate: float) -> None:
        self.world, self.rate = world, rate
        self.worth = np.zeros((runs, int(world.names.max()) + 1))

    def values(self, run: IntArray, state: IntArray) -> FloatArray:
        """V of states that are no ends, [any]."""
        return np.asarray(self.worth[run, self.world.names[state]])

    def learn(self, steps: Steps, returns: FloatArray) -> None:
        """Move towards the mean return of these steps, state by state."""
        place = steps.run * self.worth.shape[1] + self.world.names[steps.state]
        count = np.bincount(place, minlength=self.worth.size).reshape(self.worth.shape)
        total = np.bincount(place, returns, self.worth.size).reshape(self.worth.shape)
        mean = total / np.maximum(count, 1)
        self.worth = np.where(count > 0, self.worth + self.rate * (mean - self.worth), self.worth)
