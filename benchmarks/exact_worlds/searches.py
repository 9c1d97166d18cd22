"""The searches of the product (`rl_agents.search`), its own `Explorer` and credit, in exact worlds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.exact_worlds.learn import Curve, Optimiser, budget_of
from benchmarks.exact_worlds.world import World, gradient, policy, success
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.algorithms.gigpo import step_std
from rl_agents.credit.group import grpo
from rl_agents.credit.statistics import FloatArray, IntArray
from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.rollout.branching import BranchSpec, Child, Expansion
from rl_agents.rollout.env_calls import EnvReply
from rl_agents.search.explorer import Explorer, Request, SearchError
from rl_agents.search.states import States
from rl_agents.search.tree import Node

#: Tasks that are searched side by side, and samples of a state at most.
WIDTH, MOST = 4, 8


@dataclass(frozen=True)
class SearchMethod:
    """A search as it is in the product, and what is tried beside its keys.

    Attributes:
        algo, keys: of the product.
        update: an optimiser step after each tick, as in the product, or after each iteration.
        reach: weigh a state by the chance that the policy comes there along the search's path.
        states: what is known of states, made from the settings, where it is not the product's own.
    """

    algo: str = "3spo"
    keys: dict[str, Any] = field(default_factory=dict)
    update: str = "tick"
    reach: bool = False
    states: Callable[[Any], States] | None = None

    def settings(self, world: World) -> Settings:
        """The run's keys."""
        own = {"algo": self.algo, "group_size": MOST, "tasks_per_iteration": WIDTH, "search_steps": budget_of(world)}
        settings = Settings.from_dict({**own, **self.keys})
        settings.set_defaults(ALGORITHMS[self.algo].defaults)
        return settings


class Samples(NamedTuple):
    """What a tick, or an iteration, is learned from, all [samples]; ``advantage`` is weighted."""

    state: IntArray
    action: IntArray
    time: IntArray
    advantage: FloatArray
    weight: FloatArray

    @classmethod
    def none(cls) -> Samples:
        """No samples."""
        return cls(*(np.zeros(0, dtype=np.int64) for _ in range(3)), np.zeros(0), np.zeros(0))


class SearchRun:
    """One run's search; set ``chosen`` [1, states, actions] before each tick.

    Attributes:
        closed: every start state is closed: the product ends such a run, here its policy stays what it is.
    """

    def __init__(self, world: World, method: SearchMethod, seed: int) -> None:
        self.world, self.method, self.settings = world, method, method.settings(world)
        make = method.states or ALGORITHMS[method.algo].states
        assert make is not None
        tasks = [str(start) for start in np.flatnonzero(world.starts)]
        self.explorer = Explorer(self.settings, tasks, make(self.settings), width=WIDTH, most=MOST, seed=seed)
        self.generator = np.random.default_rng(seed)
        self.labels = [str(name) for name in world.names.tolist()] + ["won", "lost"]
        self.chosen: FloatArray = np.zeros(0)
        self._chance = np.cumsum(world.chances, axis=-1)
        self._reach: dict[Node, float] = {}
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
            origins = [request.search.current for request in requests]
            self.look(requests, expansions)
            tick = self.explorer.update(requests, expansions)
            reach = self._follow(requests, origins, expansions)
            yield self._samples(tick.samples, reach)
        self.explorer.end_iteration()

    def look(self, requests: Sequence[Request], expansions: Sequence[Expansion]) -> None:
        """A tick was sampled and nothing of it is known yet (`benchmarks.exact_worlds.parts` looks here)."""

    def _samples(self, samples: Sequence[Trajectory], reach: dict[int, float]) -> Samples:
        rows = [(*s.steps[0].prompt_ids, s.steps[0].response_ids[0], s.group_id) for s in samples]
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        gained = grpo([s.steps[0].reward for s in samples], table[:, 3], std=step_std(self.settings)) if rows else []
        weight = np.array([reach[group] if self.method.reach else 1.0 for group in table[:, 3].tolist()])
        return Samples(table[:, 0], table[:, 2], table[:, 1], np.asarray(gained, dtype=np.float64), weight)

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

    def _follow(
        self, requests: Sequence[Request], origins: Sequence[Node | None], expansions: Sequence[Expansion]
    ) -> dict[int, float]:
        """Reach of each state that was expanded, by its group; and of the states that wait behind it."""
        found, share = {}, {}
        for request, origin, expansion in zip(requests, origins, expansions, strict=True):
            assert origin is not None
            found[request.spec.group_id] = self._reach.pop(origin, 1.0)
            said = [child.step.action for child in expansion.children]
            for action in set(said):
                share[(origin, action)] = found[request.spec.group_id] * said.count(action) / len(said)
        for search in self.explorer.searches:
            for node in (*search.frontier, *([search.current] if search.current else [])):
                if node.parent is not None and node.step is not None:
                    self._reach.setdefault(node, share.get((node.parent, node.step.action), 0.0))
        waiting = {id(n) for s in self.explorer.searches for n in (*s.frontier, s.current)}
        self._reach = {node: value for node, value in self._reach.items() if id(node) in waiting}
        return found


def learn_search(world: World, method: SearchMethod, *, lr: float, seeds: int, iterations: int, seed: int = 0) -> Curve:
    """Learning curves of a search; one run after the other."""
    found = [_one(world, method, lr, iterations, seed + 1000 * (1 + run)) for run in range(seeds)]
    curves, closed = (np.array(part) for part in zip(*found, strict=True))
    return Curve(np.arange(iterations + 1.0) * budget_of(world), curves.T, float(closed.mean()))


def _one(world: World, method: SearchMethod, lr: float, iterations: int, seed: int) -> tuple[list[float], bool]:
    run, optimiser, weights = SearchRun(world, method, seed), Optimiser(lr), world.weights[None].copy()
    run.chosen = policy(world, weights)
    reached = [float(success(world, run.chosen)[0])]
    for _ in range(iterations):
        gathered: list[Samples] = []
        for samples in run.iteration():
            gathered.append(samples)
            if method.update == "tick":
                weights = weights + ascent_of(world, run, optimiser, gathered)
                run.chosen = policy(world, weights)
                gathered = []
        weights = weights + ascent_of(world, run, optimiser, gathered)
        run.chosen = policy(world, weights)
        reached.append(float(success(world, run.chosen)[0]))
    return reached, run.closed


def ascent_of(world: World, run: SearchRun, optimiser: Optimiser, gathered: Sequence[Samples]) -> FloatArray:
    """One optimiser step on these samples; their advantages are those of the policy that sampled them."""
    if not gathered or not any(np.abs(samples.advantage).any() for samples in gathered):
        return np.zeros_like(world.weights)[None]
    state, action, _, advantage, weight = (np.concatenate(part) for part in zip(*gathered, strict=True))
    ascent = gradient(world, run.chosen, np.zeros(state.size, dtype=np.int64), state, action, advantage * weight)
    return optimiser.step(ascent, np.abs(ascent).sum(axis=(1, 2)))
