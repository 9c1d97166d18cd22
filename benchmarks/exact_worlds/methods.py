"""Methods that learn from whole episodes: how they spend an iteration's steps, and the advantage of each step.

All formulas are those of `rl_agents.advantages`; here stands what they are given.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from benchmarks.exact_worlds.again import Solved
from benchmarks.exact_worlds.critics import ChainCritic, ReturnCritic, Transitions
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps, episodes
from benchmarks.exact_worlds.world import World
from rl_agents.advantages.gae import discounted_returns, step_gae, whiten_steps
from rl_agents.advantages.group import Std, grpo
from rl_agents.advantages.statistics import FloatArray
from rl_agents.algorithms.gigpo import anchor_clusters, gigpo
from rl_agents.algorithms.hgpo import hgpo

GROUP = 8


@dataclass
class Batch:
    """What an optimizer step learns from: steps and their advantages; ``steps.reach`` weighs them."""

    steps: Steps
    advantages: FloatArray


#: Spends an iteration's budget.
Method = Callable[[Sampler, Budget], Batch]
#: (world, runs) -> a method with an empty memory.
Maker = Callable[[World, int], Method]


def rewards(world: World, steps: Steps) -> FloatArray:
    """1 on a step that solves the task."""
    return steps.solved(world).astype(np.float64)


def anchors(world: World, steps: Steps) -> list[str]:
    """Names of states."""
    labels = [str(name) for name in world.names.tolist()]
    return [labels[state] for state in steps.state.tolist()]


def episode_advantages(world: World, steps: Steps, std: Std) -> FloatArray:
    """GRPO's advantage of an episode in its group, at each of its steps."""
    ends = np.flatnonzero(steps.following < 0)  # one per episode, in the order of the episodes
    of_episode = grpo(rewards(world, steps)[ends], steps.group[ends], std=std)
    return np.asarray(of_episode[np.searchsorted(ends, np.arange(len(steps)))])


def grpo_of(std: Std = "sample", size: int = GROUP) -> Maker:
    """GRPO."""

    def make(world: World, runs: int) -> Method:
        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, size)
            return Batch(steps, episode_advantages(world, steps, std))

        return method

    return make


def gigpo_of(std: Std = "none", gamma: float = 0.95) -> Maker:
    """GiGPO; without deviation as by default."""

    def make(world: World, runs: int) -> Method:
        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, GROUP)
            returns = discounted_returns(rewards(world, steps), steps.following, np.zeros(len(steps)), gamma=gamma)
            clusters = anchor_clusters(anchors(world, steps), steps.group)
            whole = episode_advantages(world, steps, std)
            return Batch(steps, gigpo(whole, returns, clusters, omega=1.0, std=std))

        return method

    return make


def hgpo_of(gamma: float = 0.95) -> Maker:
    """HGPO with two earlier states, as by default."""

    def make(world: World, runs: int) -> Method:
        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, GROUP)
            returns = discounted_returns(rewards(world, steps), steps.following, np.zeros(len(steps)), gamma=gamma)
            previous = np.where(steps.time > 0, np.arange(-1, len(steps) - 1), -1)
            advantages = hgpo(
                returns, anchors(world, steps), steps.group, previous,
                history=2, alpha=1.0, weight_offset=1, std="population",
            )  # fmt: skip
            return Batch(steps, advantages)

        return method

    return make


def whitened(steps: Steps, advantages: FloatArray) -> FloatArray:
    """Each run's advantages whitened over its batch."""
    found = np.zeros(len(steps))
    for run in np.unique(steps.run):
        own = steps.run == run
        found[own] = whiten_steps(advantages[own])
    return found


def steppo_of(gamma: float = 0.99, lam: float = 1.0, rate: float = 0.3, size: int = GROUP) -> Maker:
    """StepPO: step GAE with a critic that learns from returns, whitened; ``size`` episodes start in one task."""

    def make(world: World, runs: int) -> Method:
        critic = ReturnCritic(world, runs, rate=rate)

        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, size)
            known = critic.values(steps.run, steps.state)
            gae = step_gae(
                rewards(world, steps), known, steps.following, gamma=gamma, lam=lam, final_values=np.zeros(len(steps))
            )
            critic.learn(steps, gae.returns)
            return Batch(steps, whitened(steps, gae.advantages))

        return method

    return make


def vine_of(continuations: int = 3) -> Maker:
    """VinePPO: V(s) of every state on an episode's way from further episodes from there; A = V(s') - V(s)."""

    def make(world: World, runs: int) -> Method:
        def method(sampler: Sampler, budget: Budget) -> Batch:
            parts: list[Steps] = []
            gains: list[FloatArray] = []
            while (able := budget.able()).size:
                steps = sampler.one_group(able, 1)
                budget.spend(steps.run)
                who = np.repeat(np.arange(len(steps)), continuations)
                tails = sampler.play(
                    steps.run[who], steps.group[who], steps.state[who], steps.time[who], np.ones(who.size)
                )
                budget.spend(tails.run)
                parts.append(steps)
                gains.append(_progress(world, steps, tails, continuations))
            return Batch(Steps.joined(parts), np.concatenate([np.zeros(0), *gains]))

        return method

    return make


def _progress(world: World, steps: Steps, tails: Steps, continuations: int) -> FloatArray:
    ends = np.flatnonzero(tails.following < 0)
    worth = tails.solved(world)[ends].reshape(-1, continuations).mean(axis=1)
    after = np.where(steps.ended, steps.solved(world), worth[steps.following])
    return np.asarray(after - worth)


def chain_advantages(
    world: World, critic: ChainCritic, steps: Steps, lam: float, own: float | None = None
) -> FloatArray:
    """Step GAE over the values of a chain; λ = 0 is γ·V(s') - V(s).

    Args:
        own: γ of the recursion where it is not the critic's.
    """
    return step_gae(
        rewards(world, steps), critic.values(steps.run, steps.state), steps.following,
        gamma=critic.gamma if own is None else own, lam=lam, final_values=np.zeros(len(steps)),
    ).advantages  # fmt: skip


def chain_of(
    lam: float = 0.0, gamma: float = 0.95, keep: float = 0.7, prior: float = 1.0, size: int = 1, first: str = "count",
    imitate: float = 0.0, bounded: bool = False, ratio: Literal["none", "clip", "truncate"] = "none",
    corrected: float = 0.0,
) -> Maker:  # fmt: skip
    """Ordinary episodes whose critic is the chain of states.

    Args:
        lam: 0: γ·V(s') - V(s); 1: the return against V(s).
        keep: factor on earlier counts per iteration.
        size: episodes that start in one task.
        first: ``count``: the steps that are judged are counted first; ``judge``: they are counted afterwards.
        imitate, bounded, ratio: weight of solved episodes of the last four iterations, and how they are learned from
            (`Solved`); 0: they are not.
        corrected: k of `Transitions`, whose b(s, s') is added to a step's advantage; 0: nothing is.
    """

    def make(world: World, runs: int) -> Method:
        critic = ChainCritic(world, runs, gamma=gamma, keep=keep, prior=prior)
        solved = Solved(imitate, bounded, ratio) if imitate else None
        transitions = Transitions(world, runs, keep=keep, prior=corrected) if corrected else None

        def method(sampler: Sampler, budget: Budget) -> Batch:
            steps = episodes(sampler, budget, size)
            critic.fade()
            if first == "count":
                critic.count(steps)
            advantages = chain_advantages(world, critic, steps, lam)
            if transitions is not None:
                beyond = chain_advantages(world, critic, steps, 1.0) - advantages
                advantages = advantages + transitions.correction(steps, beyond)
            if first != "count":
                critic.count(steps)
            if solved is None:
                return Batch(steps, advantages)
            old, gained = solved.again(world, sampler, critic, steps)
            solved.keep(world, sampler, steps)
            return Batch(Steps.joined([steps, old]), np.concatenate([advantages, gained]))

        return method

    return make
