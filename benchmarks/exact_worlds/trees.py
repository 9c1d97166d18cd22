"""Branching on the policy's own way: episodes, and further continuations of states that were met on them.

Reach: of n continuations of a state each stands for 1/n of what went through it. So steps that were sampled behind a
branch weigh less, and the gradient's expectation is that of ordinary episodes, wherever one branches; what changes is its
variance.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from benchmarks.exact_worlds.critics import ChainCritic
from benchmarks.exact_worlds.methods import Batch, Maker, Method, chain_advantages
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps
from benchmarks.exact_worlds.world import World
from rl_agents.credit.statistics import FloatArray, IntArray

#: How a state to branch at is chosen.
Choice = Literal["uniform", "spread"]


def branch_of(
    choice: Choice = "spread", *, siblings: int = 3, lam: float = 0.9, gamma: float = 0.95, keep: float = 0.7,
    whole: float = 0.5, weigh: bool = True,
) -> Maker:  # fmt: skip
    """Episodes from the start for one part of the budget, continuations of states on them for the rest.

    Args:
        choice: ``uniform``: any step; ``spread``: by reach times the deviation of what a step there leads to (the chain's).
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
    """Branch until the budget is spent; an episode is branched again only behind its last branch."""
    spread = critic.spread()
    free = steps.following >= 0 if len(steps) else np.zeros(0, dtype=np.bool_)
    while (able := budget.able()).size and free.any():
        score = (
            steps.reach * (spread[steps.run, world.names[steps.state]] + 1e-3) if choice == "spread" else steps.reach
        )
        score = np.where(free & np.isin(steps.run, able), score, 0.0)
        at = _drawn(sampler, steps.run, score, critic.counts.shape[0])
        if not at.size:
            break
        ends = np.flatnonzero(steps.following < 0)
        last = ends[np.searchsorted(ends, at)]
        for first, end in zip(at.tolist(), last.tolist(), strict=True):
            steps.reach[first : end + 1] /= siblings + 1
        begin = np.searchsorted(ends, at)
        starts = np.where(begin > 0, ends[begin - 1] + 1, 0)
        for first, end in zip(starts.tolist(), at.tolist(), strict=True):
            free[first : end + 1] = False
        who = np.repeat(at, siblings)
        more = sampler.play(steps.run[who], steps.group[who], steps.state[who], steps.time[who], steps.reach[who])
        budget.spend(more.run)
        fresh = np.ones(len(more), dtype=np.bool_)
        fresh[np.flatnonzero(np.append(True, more.following[:-1] < 0))] = False  # the state was branched at already
        steps, free = Steps.joined([steps, more]), np.concatenate([free, fresh])
    return steps


def _drawn(sampler: Sampler, run: IntArray, score: FloatArray, runs: int) -> IntArray:
    """One step of each run with a score, with chances in proportion to the scores."""
    with np.errstate(divide="ignore"):
        keys = np.log(score) + sampler.generator.gumbel(size=score.size)
    best = np.full(runs, -np.inf)
    np.maximum.at(best, run, keys)
    return np.flatnonzero((keys == best[run]) & (score > 0))
