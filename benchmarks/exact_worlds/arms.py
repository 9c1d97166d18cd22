"""The compared arms, and the cosine of their step advantages with the exact ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.exact_worlds import methods
from benchmarks.exact_worlds.learn import Curve, budget_of, learn
from benchmarks.exact_worlds.walks import Budget, Sampler
from benchmarks.exact_worlds.world import World, policy, values


@dataclass(frozen=True)
class Arm:
    """A method, the length ``lr`` of its optimizer step, and its trust region (`learn`)."""

    method: methods.Maker
    lr: float = 1.0
    trust: float = 0.0

    def curve(self, world: World, *, seeds: int, iterations: int, lr: float | None = None) -> Curve:
        rate = self.lr if lr is None else lr
        return learn(world, self.method, lr=rate, seeds=seeds, iterations=iterations, trust=self.trust)


def _replayed(lam: float, corrected: float = 0.0) -> Arm:
    return Arm(methods.chain_of(lam, imitate=0.3, bounded=True, clipped=True, corrected=corrected))


BASELINES = {
    "grpo": Arm(methods.memoryless(methods.grpo_advantages)),
    "gigpo": Arm(methods.memoryless(methods.gigpo_advantages)),
    "hgpo": Arm(methods.memoryless(methods.hgpo_advantages)),
    "steppo": Arm(methods.steppo_of()),
}
#: The chain of states as the critic of ordinary episodes.
CHAIN = {
    **{f"chain λ={lam:g}": Arm(methods.chain_of(lam)) for lam in (0.0, 0.5, 0.9, 0.95, 1.0)},
    "chain λ=0.95, solved again": Arm(methods.chain_of(0.95, imitate=0.3)),
}
LAMBDA = {
    **{f"again, λ={lam:g}": _replayed(lam) for lam in (0.5, 0.7, 0.8, 0.9)},
    **{f"again, λ={lam:g}, corrected": _replayed(lam, 2.0) for lam in (0.5, 0.7)},
    "again, bounded, clipped": _replayed(0.95),
}
#: One change each.
PARTS = {
    "groups of 8": Arm(methods.chain_of(0.9, size=8)),
    "solved again": Arm(methods.chain_of(0.9, imitate=0.3)),
    "long steps": Arm(methods.chain_of(0.9), lr=4.0),
    "long steps, trust region": Arm(methods.chain_of(0.9), lr=4.0, trust=0.01),
}
ARMS: dict[str, Arm] = {**BASELINES, **CHAIN, **LAMBDA, **PARTS}
SETS = {
    "main": (*BASELINES, *CHAIN),
    "lambda": ("grpo", *LAMBDA),
    "parts": ("grpo", "chain λ=0.9", *PARTS),
}

#: Iterations of `step_cosine` with the same policy; those before the last fill memories.
ITERATIONS = 4


def step_cosine(world: World, arm: Arm, *, runs: int, seed: int = 0) -> float:
    """Return the cosine of Â and A over all trained steps, under the world's first policy."""
    first = policy(world, world.weights[None])
    method, budget = arm.method(world, runs), Budget(budget_of(world), np.zeros(runs))
    sampler = Sampler(world, np.repeat(first, runs, axis=0), np.random.default_rng(seed))
    for _ in range(ITERATIONS):
        budget.left[:] = budget.steps  # every iteration has samples
        batch = method(sampler, budget)
    steps = batch.steps
    exact = values(world, first).advantages[steps.time, 0, steps.state, steps.action]
    length = float(np.linalg.norm(batch.advantages) * np.linalg.norm(exact))
    return float(batch.advantages @ exact) / length if length else 0.0
