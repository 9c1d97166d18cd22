"""Branching on the policy's own way: episodes, and further continuations of states that were met on them.

Reach: of n continuations of a state each stands for 1/n of what went through it. So steps that were sampled behind a
branch weigh less, and the gradient's expectation is that of ordinary episodes, wherever one branches; what changes is
its variance.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from benchmarks.exact_worlds.critics import ChainCritic
from benchmarks.exact_worlds.methods import Batch, Maker, Method, chain_advantages
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps
from benchmarks.exact_worlds.world import World
from rl_agents.advantages.statistics import BoolArray, IntArray

#: How a state to branch at is chosen.
Choice = Literal["uniform", "spread"]
#: Branches of an episode that lasts as long as it may, if it could branch again.
RATE = 2.0


def branch_of(
    choice: Choice = "spread", *, siblings: int = 3, lam: float = 0.9, gamma: float = 0.95, keep: float = 0.7,
    whole: float = 0.5, weigh: bool = True,
) -> Maker:  # fmt: skip
    """Episodes from the start for one part of the budget, continuations of states on them for the rest.

    Args:
        choice: ``uniform``: any step; ``spread``: by the deviation of what a step there leads to (the chain's).
        siblings: further continuations of a chosen state.
        whole: share of the budget for episodes from the start.
        weigh: by reach; without, a branch counts like an episode.
    """

    def make(world: World, runs: int) -> Method:
        critic = ChainCritic(world, runs, gamma=gamma, keep=keep)

        def method(sampler: Sampler, budget: Budget) -> Batch:
            rest = (1.0 - whole) * np.maximum(budget.left, 0.0)
            budget.left -= rest
            parts = []
            while (able := budget.able()).size:
                parts.append(sampler.one_group(able, 1))
                budget.spend(parts[-1].run)
            budget.left += rest
            steps = _branch(world, sampler, budget, Steps.joined(parts), critic, choice, siblings)
            critic.fade()
            critic.count(steps)
            advantages = chain_advantages(world, critic, steps, lam)
            if not weigh:
                steps.reach = np.ones(len(steps))
            return Batch(steps, advantages)

        return method

    return make


def _branch(
    world: World, sampler: Sampler, budget: Budget, steps: Steps, critic: ChainCritic, choice: Choice, siblings: int
) -> Steps:
    """Branch until the budget is spent, each episode once at most; further episodes from the start when none is left.

    Where an episode is branched is decided on its way, by the states so far: a choice that looked at what came after
    (how long it went on, say) would replace unusual continuations by usual ones.
    """
    waiting = _hits(world, sampler, steps, critic, choice)
    while (able := budget.able()).size:
        at = np.flatnonzero(waiting & np.isin(steps.run, able))
        at = at[np.unique(steps.run[at], return_index=True)[1]]  # the first that waits, in each run
        idle = np.setdiff1d(able, steps.run[at])
        more = [_continued(sampler, steps, at, siblings)] if at.size else []
        more += [sampler.one_group(idle, 1)] if idle.size else []
        waiting[at] = False
        for part in more:
            budget.spend(part.run)
            waiting = np.concatenate([waiting, _hits(world, sampler, part, critic, choice)])
        steps = Steps.joined([steps, *more])
    return steps


def _hits(world: World, sampler: Sampler, steps: Steps, critic: ChainCritic, choice: Choice) -> BoolArray:
    """The first step of each episode, behind its own first, at which chance says to branch."""
    rate = np.full(len(steps), RATE / world.horizon)
    if choice == "spread":
        spread = critic.spread()
        met = critic.counts.sum(axis=-1) > 0
        usual = (spread * met).sum(axis=1) / np.maximum(met.sum(axis=1), 1) + 1e-6
        rate *= (spread[steps.run, world.names[steps.state]] + 1e-6) / usual[steps.run]
    hit = sampler.generator.random(len(steps)) < rate
    hit[np.flatnonzero(np.append(True, steps.following[:-1] < 0))] = False  # a child's first step: the branch itself
    before = np.cumsum(hit) - hit
    first = np.append(True, steps.following[:-1] < 0)
    return np.asarray(hit & (before == before[np.maximum.accumulate(np.where(first, np.arange(len(steps)), 0))]))


def _continued(sampler: Sampler, steps: Steps, at: IntArray, siblings: int) -> Steps:
    """Further continuations of the states of these steps; what went on from there shares its reach with them."""
    ends = np.flatnonzero(steps.following < 0)
    for first, last in zip(at.tolist(), ends[np.searchsorted(ends, at)].tolist(), strict=True):
        steps.reach[first : last + 1] /= siblings + 1
    who = np.repeat(at, siblings)
    return sampler.play(steps.run[who], steps.group[who], steps.state[who], steps.time[who], steps.reach[who])
