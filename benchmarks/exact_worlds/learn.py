"""Learning curves with exact success at every iteration, of many seeds in parallel."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.exact_worlds.methods import Maker
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps
from benchmarks.exact_worlds.world import World, gradient, policy, success
from rl_agents.advantages import FloatArray

#: Environment steps of an iteration, in episodes of full length.
EPISODES = 8
MOMENTUM, SPREAD = 0.9, 0.99


def budget_of(world: World) -> int:
    return EPISODES * world.horizon


@dataclass
class Optimizer:
    """Adam with one second moment for all weights of a run, so that a step has the fixed length ``lr``.

    With a moment per weight, a table of logits would change as much in a rare state as in a common one.
    """

    lr: float
    mean: FloatArray | None = None
    square: FloatArray | None = None
    steps: FloatArray = field(default_factory=lambda: np.zeros(0))

    def step(self, ascent: FloatArray, active: FloatArray) -> FloatArray:
        """Return the change of the weights [runs, parts, actions]; runs that are not ``active`` stay unchanged."""
        if self.mean is None or self.square is None:
            self.mean, self.square, self.steps = np.zeros_like(ascent), np.zeros(len(ascent)), np.zeros(len(ascent))
        on = active > 0
        self.steps = self.steps + on
        size = (ascent**2).sum(axis=(1, 2))
        self.mean = np.where(on[:, None, None], MOMENTUM * self.mean + (1 - MOMENTUM) * ascent, self.mean)
        self.square = np.where(on, SPREAD * self.square + (1 - SPREAD) * size, self.square)
        count = np.maximum(self.steps, 1.0)
        length = np.sqrt(self.square / (1 - SPREAD**count)) + 1e-12
        moved = self.mean / (1 - MOMENTUM**count)[:, None, None] / length[:, None, None]
        return np.asarray(self.lr * np.where(on[:, None, None], moved, 0.0))


@dataclass
class Curve:
    """Environment steps from 0 on [iterations + 1], and J of every seed's policy [iterations + 1, seeds]."""

    steps: FloatArray
    success: FloatArray


def learn(
    world: World, make: Maker, *, lr: float, seeds: int, iterations: int, seed: int = 0, trust: float = 0.0
) -> Curve:
    """Learn with one optimizer step per iteration; ``trust`` is the largest KL on visited states, 0: no limit."""
    generator = np.random.default_rng(seed)
    weights = np.repeat(world.weights[None], seeds, axis=0)
    method, optimizer = make(world, seeds), Optimizer(lr)
    budget = Budget(budget_of(world), np.zeros(seeds))
    chosen = policy(world, weights)
    reached = [success(world, chosen)]
    for _ in range(iterations):
        budget.renew()
        batch = method(Sampler(world, chosen, generator), budget)
        steps = batch.steps
        ascent = gradient(world, chosen, steps.run, steps.state, steps.action, batch.advantages * steps.reach)
        change = optimizer.step(ascent, np.abs(ascent).sum(axis=(1, 2)))
        if trust:
            change = change * _within(world, weights, change, batch.steps, trust)[:, None, None]
        weights = weights + change
        chosen = policy(world, weights)
        reached.append(success(world, chosen))
    return Curve(np.arange(iterations + 1.0) * budget_of(world), np.array(reached))


def _within(world: World, weights: FloatArray, change: FloatArray, steps: Steps, trust: float) -> FloatArray:
    """Return a factor on each run's change, halved until the KL on visited states is within bounds, [runs]."""
    old, runs = policy(world, weights), len(weights)
    visits = np.bincount(steps.run * world.states + steps.state, steps.reach, runs * world.states).reshape(runs, -1)
    visits = visits / np.maximum(visits.sum(axis=1, keepdims=True), 1e-9)
    factor = np.ones(runs)
    for _ in range(8):
        new = policy(world, weights + factor[:, None, None] * change)
        distance = (visits * (old * np.log(np.maximum(old, 1e-12) / np.maximum(new, 1e-12))).sum(axis=-1)).sum(axis=1)
        factor = np.where(distance > trust, factor / 2, factor)
    return factor
