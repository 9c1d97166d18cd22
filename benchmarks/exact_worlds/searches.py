"""The searches of the product (`rl_agents.rollout.tree_search`), its own `Explorer` and credit, in exact worlds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.exact_worlds.learn import Curve, Optimizer, budget_of
from benchmarks.exact_worlds.world import World, gradient, policy, success
from rl_agents.advantages.statistics import FloatArray, IntArray
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.three_spo import StateStatistics, sibling_advantages
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rollout.branching import BranchSpec, Child, Expansion
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.rollout.tree_search.explorer import Explorer, SearchError
from rl_agents.rollout.tree_search.states import PATH

#: Tasks that are searched side by side.
WIDTH = 4


@dataclass(frozen=True)
class SearchMethod:
    """3spo as it is in the product, with these keys."""

    keys: dict[str, Any] = field(default_factory=dict)

    def settings(self, world: World) -> Settings:
        """The run's keys."""
        own = {
            "algo": "3spo", "tasks_per_iteration": WIDTH, "search_steps": budget_of(world), "state_key": "anchor",
            "max_turns": world.horizon,
        }  # fmt: skip
        settings = Settings.from_dict({**own, **self.keys})
        settings.set_defaults(ALGORITHMS["3spo"].defaults_of(settings))
        return settings


class Samples(NamedTuple):
    """What a tick is trained on, all [samples]."""

    state: IntArray
    action: IntArray
    time: IntArray
    advantage: FloatArray
    weight: FloatArray


class SearchRun:
    """One run's search; set ``chosen`` [1, states, actions] before each tick.

    Attributes:
        closed: every start state is closed: the product ends such a run, here its policy stays what it is.
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
        """The samples of one tick after the other."""
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
        deviation = samples[0].facts["deviation"] if samples else None
        gained = sibling_advantages(
            rewards, table[:, 3], table[:, 4], deviation=deviation, weight=self.settings.path_weight
        )
        return Samples(table[:, 0], table[:, 2], table[:, 1], gained, np.ones(len(rows)))

    def _expand(self, specs: Sequence[BranchSpec]) -> list[Expansion]:
        """What runners would answer; equal siblings share one execution."""
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
    """Learning curves of a search; one run after the other."""
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
    """One optimizer step on these samples; their advantages are those of the policy that sampled them."""
    if not np.abs(samples.advantage).any():
        return np.zeros_like(world.weights)[None]
    first = np.zeros(samples.state.size, dtype=np.int64)
    ascent = gradient(world, run.chosen, first, samples.state, samples.action, samples.advantage)
    return optimizer.step(ascent, np.abs(ascent).sum(axis=(1, 2)))
