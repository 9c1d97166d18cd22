"""Methods that learn from complete episodes: their sampling, step advantages and memory. The formulas are those of
`rl_agents.advantages`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from benchmarks.exact_worlds.walks import Budget, Sampler, Steps, episodes
from benchmarks.exact_worlds.world import World
from rl_agents.advantages import (
    FloatArray,
    IntArray,
    Std,
    chain_values,
    discounted_returns,
    gains,
    grpo,
    step_gae,
    whiten_steps,
)
from rl_agents.algorithms.gigpo import anchor_clusters, gigpo
from rl_agents.algorithms.hgpo import hgpo

GROUP = 8
GAMMA, KEEP = 0.95, 0.7


@dataclass
class Batch:
    """The data of an optimizer step: steps and their advantages, weighted by ``steps.reach``."""

    steps: Steps
    advantages: FloatArray


#: Spends an iteration's budget.
Method = Callable[[Sampler, Budget], Batch]
#: (world, runs) -> method with an empty memory.
Maker = Callable[[World, int], Method]


def rewards(world: World, steps: Steps) -> FloatArray:
    return steps.solved(world).astype(np.float64)


def anchors(world: World, steps: Steps) -> list[str]:
    labels = [str(name) for name in world.names.tolist()]
    return [labels[state] for state in steps.state.tolist()]


def memoryless(advantages: Callable[[World, Steps], FloatArray]) -> Maker:
    """Return a method with groups of complete episodes and no memory."""

    def make(world: World, runs: int) -> Method:
        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, GROUP)
            return Batch(steps, advantages(world, steps))

        return method

    return make


def grpo_advantages(world: World, steps: Steps, std: Std = "sample") -> FloatArray:
    """Return GRPO's advantage of an episode in its group, at each of its steps."""
    ends = np.flatnonzero(steps.following < 0)  # one per episode, in the order of the episodes
    of_episode = grpo(rewards(world, steps)[ends], steps.group[ends], std=std)
    return np.asarray(of_episode[np.searchsorted(ends, np.arange(len(steps)))])


def returns_of(world: World, steps: Steps) -> FloatArray:
    """Return Σ γ^t·r of the rest of the episode, with γ = 0.95 as in the product's recipes."""
    return discounted_returns(rewards(world, steps), steps.following, np.zeros(len(steps)), gamma=GAMMA)


def gigpo_advantages(world: World, steps: Steps) -> FloatArray:
    """GiGPO without division by the deviation, as by default."""
    clusters = anchor_clusters(anchors(world, steps), steps.group)
    whole = grpo_advantages(world, steps, "none")
    return np.asarray(gigpo(whole, returns_of(world, steps), clusters, omega=1.0, std="none"))


def hgpo_advantages(world: World, steps: Steps) -> FloatArray:
    """HGPO with a history of two states, as by default."""
    previous = np.where(steps.time > 0, np.arange(-1, len(steps) - 1), -1)
    return np.asarray(
        hgpo(
            returns_of(world, steps), anchors(world, steps), steps.group, previous,
            history=2, alpha=1.0, std="population",
        )
    )  # fmt: skip


def whitened(steps: Steps, advantages: FloatArray) -> FloatArray:
    """Return each run's advantages, whitened over its batch."""
    found = np.zeros(len(steps))
    for run in np.unique(steps.run):
        own = steps.run == run
        found[own] = whiten_steps(advantages[own])
    return found


def steppo(world: World, runs: int) -> Method:
    """StepPO: step GAE (γ = 0.99, λ = 1) with a critic that learns from returns, whitened."""
    critic = ReturnCritic(world, runs, rate=0.3)

    def method(sampler: Sampler, budget: Budget) -> Batch:
        steps = episodes(sampler, budget, GROUP)
        known = critic.values(steps.run, steps.state)
        gae = step_gae(
            rewards(world, steps), known, steps.following, gamma=0.99, lam=1.0, final_values=np.zeros(len(steps))
        )
        critic.learn(steps, gae.returns)
        return Batch(steps, whitened(steps, gae.advantages))

    return method


def chain_advantages(world: World, critic: ChainCritic, steps: Steps, lam: float) -> FloatArray:
    """Return step GAE with the values of a chain; λ = 0 is γ·V(s') - V(s)."""
    return step_gae(
        rewards(world, steps), critic.values(steps.run, steps.state), steps.following,
        gamma=critic.gamma, lam=lam, final_values=np.zeros(len(steps)),
    ).advantages  # fmt: skip


def chain_of(
    lam: float, imitate: float = 0.0, bounded: bool = False, clipped: bool = False, corrected: float = 0.0
) -> Maker:
    """Return a method whose critic is the chain of states, with γ = 0.95 and a factor of 0.7 on earlier counts.

    Args:
        lam: 0: γ·V(s') - V(s); 1: the return minus V(s).
        imitate, bounded, clipped: weight of successful episodes of the last four iterations, and their use (`Solved`);
            0: no replay.
        corrected: k of `Transitions`, whose b(s, s') is added to a step's advantage; 0: no correction.
    """

    def make(world: World, runs: int) -> Method:
        critic = ChainCritic(world, runs, gamma=GAMMA, keep=KEEP)
        solved = Solved(imitate, bounded, clipped) if imitate else None
        transitions = Transitions(world, runs, keep=KEEP, prior=corrected) if corrected else None

        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, 1)
            critic.fade()
            critic.count(steps)
            advantages = chain_advantages(world, critic, steps, lam)
            if transitions is not None:
                beyond = chain_advantages(world, critic, steps, 1.0) - advantages
                advantages = advantages + transitions.correction(steps, beyond)
            if solved is None:
                return Batch(steps, advantages)
            old, gained = solved.again(world, sampler, critic, steps)
            solved.keep(world, sampler, steps)
            return Batch(Steps.joined([steps, old]), np.concatenate([advantages, gained]))

        return method

    return make


# --- memories


class ChainCritic:
    """The Markov chain of the steps of this and of earlier iterations, one per run (`rl_agents.advantages`).

    Args:
        gamma: γ per step.
        keep: factor on the counts of earlier iterations.

    Attributes:
        worth: V by name, [runs, names].
        counts: N(s, s') by names, [runs, names, names + 2]; the last two are the ends.
    """

    def __init__(self, world: World, runs: int, *, gamma: float, keep: float) -> None:
        self.world, self.gamma, self.keep = world, gamma, keep
        self.names = int(world.names.max()) + 1
        self._name = np.append(world.names, [self.names, self.names + 1])
        self.counts = np.zeros((runs, self.names, self.names + 2))
        self.worth = np.zeros((runs, self.names))

    def fade(self) -> None:
        self.counts *= self.keep

    def count(self, steps: Steps) -> None:
        """Count these steps and solve the chains. An episode that the horizon cut ended unsolved."""
        after = np.where(steps.ended & ~steps.solved(self.world), self.world.won + 1, steps.after)
        place = (steps.run * self.names + self._name[steps.state]) * (self.names + 2) + self._name[after]
        self.counts += np.bincount(place, steps.reach, self.counts.size).reshape(self.counts.shape)
        run, origin, target = np.nonzero(self.counts[..., : self.names] > 1e-3)
        total = self.counts.sum(axis=-1).reshape(-1)
        there = run * self.names + target
        self.worth = chain_values(
            total, self.counts[..., self.names].reshape(-1), run * self.names + origin,
            np.where(total[there] > 0, there, -1), self.counts[run, origin, target],
            gamma=self.gamma, prior=1.0, chain=np.repeat(np.arange(len(self.counts)), self.names),
            start=self.worth.reshape(-1),
        ).reshape(self.worth.shape)  # fmt: skip

    def values(self, run: IntArray, state: IntArray) -> FloatArray:
        """Return V of states [any]; that of the ends is 1 and 0."""
        padded = np.concatenate([self.worth, np.ones((len(self.worth), 1)), np.zeros((len(self.worth), 1))], axis=1)
        return np.asarray(padded[run, self._name[state]])


class Transitions:
    """Correction of step GAE for state aliasing, by the names of a state and the next one.

    b(s, s') = Σ (A^1 - A^λ)/(N(s, s') + k), over this and earlier iterations; its mean is 0 without aliasing.

    Args:
        keep: factor on the sums of earlier iterations.
        prior: k, visits without information.
    """

    def __init__(self, world: World, runs: int, *, keep: float, prior: float) -> None:
        self.world, self.keep, self.prior = world, keep, prior
        names = int(world.names.max()) + 1
        self._name = np.append(world.names, [names, names + 1])
        self._shape = (names, names + 2)
        self._visits, self._beyond = np.zeros((2, runs * names * (names + 2)))

    def correction(self, steps: Steps, beyond: FloatArray) -> FloatArray:
        """Count A^1 - A^λ of these steps; return b of each."""
        after = np.where(steps.ended & ~steps.solved(self.world), self.world.won + 1, steps.after)
        at = (steps.run * self._shape[0] + self._name[steps.state]) * self._shape[1] + self._name[after]
        self._visits = self.keep * self._visits + np.bincount(at, minlength=self._visits.size)
        self._beyond = self.keep * self._beyond + np.bincount(at, beyond, self._beyond.size)
        return np.asarray(self._beyond[at] / (self._visits[at] + self.prior))


class ReturnCritic:
    """V by name as a moving average of returns: the best that a critic network trained on them could learn.

    Args:
        rate: share of a new mean of returns.
    """

    def __init__(self, world: World, runs: int, *, rate: float) -> None:
        self.world, self.rate = world, rate
        self.worth = np.zeros((runs, int(world.names.max()) + 1))

    def values(self, run: IntArray, state: IntArray) -> FloatArray:
        """Return V of states other than the ends, [any]."""
        return np.asarray(self.worth[run, self.world.names[state]])

    def learn(self, steps: Steps, returns: FloatArray) -> None:
        """Move V of each state toward the mean return of its steps."""
        place = steps.run * self.worth.shape[1] + self.world.names[steps.state]
        count = np.bincount(place, minlength=self.worth.size).reshape(self.worth.shape)
        total = np.bincount(place, returns, self.worth.size).reshape(self.worth.shape)
        mean = total / np.maximum(count, 1)
        self.worth = np.where(count > 0, self.worth + self.rate * (mean - self.worth), self.worth)


#: Iterations for which an episode is replayed.
WINDOW = 4
#: A ratio above 1 + CLIP has no gradient.
CLIP = 0.2


@dataclass
class Solved:
    """The successful episodes of all runs, and their replay.

    Attributes:
        weight: of their steps; new ones have 1.
        bounded: use only the newest, at most as many as the batch has new episodes.
        clipped: weigh them by the ratio to the sampling policy with PPO's clip (as in the product).
    """

    weight: float
    bounded: bool = False
    clipped: bool = False
    _kept: list[tuple[Steps, FloatArray]] = field(default_factory=list)

    def again(self, world: World, sampler: Sampler, critic: ChainCritic, own: Steps) -> tuple[Steps, FloatArray]:
        """Return their steps, the oldest first, and max(0, γ^(steps left) - V(s)) of each, times the ratio."""
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
        if self.clipped:
            gained = gained * np.where(ratio < 1 + CLIP, ratio, 0.0)
        return old, gained

    def keep(self, world: World, sampler: Sampler, own: Steps) -> None:
        """Keep the successful episodes of a batch, with the probabilities of their actions."""
        won = own.solved(world)[own.following < 0]
        solved = own.taken(won[_episodes(own)])
        self._kept.append((solved, sampler.chosen[solved.run, solved.state, solved.action]))
        del self._kept[:-WINDOW]


def _episodes(steps: Steps) -> IntArray:
    """Return the index of each step's episode among these steps."""
    return np.asarray(np.cumsum(np.append(0, steps.following < 0))[:-1])


def _newest(old: Steps, most: IntArray) -> np.ndarray:
    """Return a mask of the steps of each run's newest ``most`` episodes."""
    runs = old.run[old.following < 0][::-1]  # newest first
    later = np.array([int((runs[:place] == run).sum()) for place, run in enumerate(runs)])
    return np.asarray((later < most[runs])[::-1][_episodes(old)])
