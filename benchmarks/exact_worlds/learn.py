"""Learning curves: policies of many seeds side by side, judged exactly at every iteration."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.exact_worlds.methods import Maker
from benchmarks.exact_worlds.walks import Budget, Sampler, Steps
from benchmarks.exact_worlds.world import World, gradient, policy, success
from rl_agents.advantages.statistics import FloatArray

#: Episodes of full length that an iteration's environment steps amount to.
EPISODES = 8
MOMENTUM, SPREAD = 0.9, 0.99


def budget_of(world: World) -> int:
    """Environment steps of an iteration."""
    return EPISODES * world.horizon


@dataclass
class Optimizer:
    """Adam with one second moment for all weights of a run: its steps have a length, not a shape.

    A table of logits has no shared weights; Adam's moment per weight would move a state that is met once as far as one
    that is met always, which no network does.

    Attributes:
        lr: length of a step while gradients point one way.
    """

    lr: float
    mean: FloatArray | None = None
    square: FloatArray | None = None
    steps: FloatArray = field(default_factory=lambda: np.zeros(0))

    def step(self, ascent: FloatArray, active: FloatArray) -> FloatArray:
        """What to add to the weights [runs, parts, actions]; runs that are not ``active`` stay as they are."""
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
    """What a method did in a world.

    Attributes:
        steps: environment steps after each iteration, from 0 on, [iterations + 1].
        success: J of every seed's policy, [iterations + 1, seeds].
        closed: share of the seeds whose search closed every start state.
    """

    steps: FloatArray
    success: FloatArray
    closed: float = 0.0


def learn(
    world: World, make: Maker, *, lr: float, seeds: int, iterations: int, seed: int = 0, trust: float = 0.0
) -> Curve:
    """Learn with one optimizer step per iteration.

    Args:
        trust: most KL(old, new) of the policy on the states that it met, in nats per step; 0: no limit.
    """
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
    """Factor on each run's change, halved until KL on the visited states is within bounds, [runs]."""
    old, runs = policy(world, weights), len(weights)
    visits = np.bincount(steps.run * world.states + steps.state, steps.reach, runs * world.states).reshape(runs, -1)
    visits = visits / np.maximum(visits.sum(axis=1, keepdims=True), 1e-9)
    factor = np.ones(runs)
    for _ in range(8):
        new = policy(world, weights + factor[:, None, None] * change)
        distance = (visits * (old * np.log(np.maximum(old, 1e-12) / np.maximum(new, 1e-12))).sum(axis=-1)).sum(axis=1)
        factor = np.where(distance > trust, factor / 2, factor)
    return factor
