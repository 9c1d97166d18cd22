"""Learning curves with exact success at every iteration, of many seeds in parallel that learn from complete episodes,
and of the product's searches (`rl_agents.rollout.tree_search`) with their `Explorer` and credit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.exact_worlds.methods import Maker
from benchmarks.exact_worlds.walks import Budget, Sampler
from benchmarks.exact_worlds.world import World, gradient, policy, success
from rl_agents.advantages import FloatArray, IntArray
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.three_spo import StateStatistics, sibling_advantages
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rollout.branching import BranchSpec, Child, Expansion
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.rollout.tree_search.explorer import Explorer, SearchError
from rl_agents.rollout.tree_search.states import PATH

#: Environment steps of an iteration, in episodes of full length.
EPISODES = 8
MOMENTUM, SPREAD = 0.9, 0.99


def budget_of(world: World) -> int:
    """Return the environment steps of an iteration."""
    return EPISODES * world.horizon


@dataclass
class Optimizer:
    """Adam with one second moment for all weights of a run, so that a step has a fixed length.

    A table of logits has no shared weights: with a moment per weight, Adam would change a state that is visited once as
    much as one that is always visited, unlike in a network.

    Attributes:
        lr: length of a step if all gradients have the same direction.
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
    """The learning curve of a method in a world.

    Attributes:
        steps: environment steps after each iteration, from 0 on, [iterations + 1].
        success: J of every seed's policy, [iterations + 1, seeds].
        closed: share of seeds whose search closed every start state.
    """

    steps: FloatArray
    success: FloatArray
    closed: float = 0.0


def learn(world: World, make: Maker, *, lr: float, seeds: int, iterations: int, seed: int = 0) -> Curve:
    """Learn with one optimizer step per iteration."""
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
        weights = weights + optimizer.step(ascent, np.abs(ascent).sum(axis=(1, 2)))
        chosen = policy(world, weights)
        reached.append(success(world, chosen))
    return Curve(np.arange(iterations + 1.0) * budget_of(world), np.array(reached))


# --- searches

#: Tasks that are searched concurrently.
WIDTH = 4


@dataclass(frozen=True)
class SearchMethod:
    keys: dict[str, Any] = field(default_factory=dict)

    def settings(self, world: World) -> Settings:
        own = {
            "algo": "3spo", "tasks_per_iteration": WIDTH, "search_steps": budget_of(world), "state_key": "anchor",
            "max_turns": world.horizon,
        }  # fmt: skip
        settings = Settings.from_dict({**own, **self.keys})
        settings.set_defaults(ALGORITHMS["3spo"].defaults_of(settings))
        return settings


class Samples(NamedTuple):
    """The training data of a tick, all [samples]."""

    state: IntArray
    action: IntArray
    time: IntArray
    advantage: FloatArray
    weight: FloatArray


class SearchRun:
    """The search of one run; set ``chosen`` [1, states, actions] before each tick.

    Attributes:
        closed: every start state is closed. The product ends such a run; here its policy stays unchanged.
    """

    def __init__(self, world: World, method: SearchMethod, seed: int) -> None:
        self.world, self.method, self.settings = world, method, method.settings(world)
        settings = self.settings
        tasks = [str(start) for start in np.flatnonzero(world.starts)]
        states, most = StateStatistics(settings), settings.group_size
        self.explorer = Explorer(settings, tasks, states, width=WIDTH, most=most, seed=seed)
        self.generator = np.random.default_rng(seed)
        self.labels = [str(name) for name in world.names.tolist()] + ["won", "lost"]
        self.chosen: FloatArray = np.zeros(0)
        self._chance = np.cumsum(world.chances, axis=-1)
        self.closed = False

    def iteration(self) -> Iterator[Samples]:
        self.explorer.begin_iteration()
        while self.explorer.has_budget() and not self.closed:
            try:
                requests = self.explorer.select(self._expand)
            except SearchError:
                self.closed = True
                break
            self._choice = np.cumsum(self.chosen[0], axis=-1)
            expansions = self._expand([request.spec for request in requests])
            yield self._samples(self.explorer.update(requests, expansions).samples)
        self.explorer.end_iteration()

    def _samples(self, samples: Sequence[Trajectory]) -> Samples:
        rows = [
            (*step.prompt_ids, step.response_ids[0], one.group_id, one.end_cause == PATH)
            for one in samples
            for step in one.steps
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        rewards = [step.reward for one in samples for step in one.steps]
        norm, weight = self.settings.sibling_norm, self.settings.path_weight
        gained = sibling_advantages(rewards, table[:, 3], table[:, 4], norm=norm, weight=weight)
        return Samples(table[:, 0], table[:, 2], table[:, 1], gained, np.ones(len(rows)))

    def _expand(self, specs: Sequence[BranchSpec]) -> list[Expansion]:
        """Return what env runners would; equal siblings share one execution."""
        return [self._children(spec) if spec.seeds else self._look(spec) for spec in specs]

    def _look(self, spec: BranchSpec) -> Expansion:
        start = int(spec.point.task_id)
        return Expansion(spec.group_id, answer=self._reply(start), snapshot=(start, 0))

    def _reply(self, state: int) -> EnvReply:
        label, won = self.labels[state], state == self.world.won
        return EnvReply(label, float(won), terminated=state >= self.world.states, anchor=label, success=won)

    def _children(self, spec: BranchSpec) -> Expansion:
        state, time = spec.point.snapshot
        dice = self.generator.random((2, len(spec.seeds)))
        actions = np.minimum(np.searchsorted(self._choice[state], dice[0], side="right"), self.world.actions - 1)
        known: dict[int, int] = {}
        children = []
        for action, chance in zip(actions.tolist(), dice[1].tolist(), strict=True):
            if action not in known:
                led = int(np.searchsorted(self._chance[state, action], chance, side="right"))
                known[action] = min(led, self.world.states + 1)
            children.append(self._child(state, time, action, known[action]))
        return Expansion(spec.group_id, children)

    def _child(self, state: int, time: int, action: int, after: int) -> Child:
        label, answer = self.labels[state], self._reply(after)
        step = Step([state, time], [action], [0.0], 0, "stop", label, label, str(action), reward=answer.reward)
        cause = "terminated" if answer.terminated else "max_turns" if time + 1 >= self.world.horizon else ""
        return Child(step, answer, cause, success=bool(answer.success), snapshot=(after, time + 1))


def learn_search(world: World, method: SearchMethod, *, lr: float, seeds: int, iterations: int, seed: int = 0) -> Curve:
    """Return the learning curves of a search, one run after the other."""
    found = [_one(world, method, lr, iterations, seed + 1000 * (1 + run)) for run in range(seeds)]
    curves, closed = (np.array(part) for part in zip(*found, strict=True))
    return Curve(np.arange(iterations + 1.0) * budget_of(world), curves.T, float(closed.mean()))


def _one(world: World, method: SearchMethod, lr: float, iterations: int, seed: int) -> tuple[list[float], bool]:
    run, optimizer, weights = SearchRun(world, method, seed), Optimizer(lr), world.weights[None].copy()
    run.chosen = policy(world, weights)
    reached = [float(success(world, run.chosen)[0])]
    for _ in range(iterations):
        for samples in run.iteration():
            weights = weights + ascent_of(world, run, optimizer, samples)
            run.chosen = policy(world, weights)
        reached.append(float(success(world, run.chosen)[0]))
    return reached, run.closed


def ascent_of(world: World, run: SearchRun, optimizer: Optimizer, samples: Samples) -> FloatArray:
    """Return one optimizer step on the samples of the current policy."""
    if not np.abs(samples.advantage).any():
        return np.zeros_like(world.weights)[None]
    first = np.zeros(samples.state.size, dtype=np.int64)
    ascent = gradient(world, run.chosen, first, samples.state, samples.action, samples.advantage)
    return optimizer.step(ascent, np.abs(ascent).sum(axis=(1, 2)))
