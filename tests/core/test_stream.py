"""A stream over env runners that are threads with event loops: real exchanges, random times, losses, checkpoints."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.core.admission import Admission
from rl_agents.core.collector import Collector, RolloutError
from rl_agents.core.experience import Episodes, Place
from rl_agents.core.pipeline import Sampled
from rl_agents.core.runners import RunnerLost
from rl_agents.core.stream import Stream
from rl_agents.data.selection import Selected, SelectionError
from rl_agents.data.trajectory import EpisodeSpec, Step, Trajectory
from rl_agents.errors import InputError
from rl_agents.rewards.base import make_reward
from rl_agents.rollout.agent_loop import Rollouts
from rl_agents.rollout.exchange import Batch, Workbench

TASKS = [f"t{number}" for number in range(12)]
STEPS = 3


class Killed(Exception):
    """The process of an env runner is gone."""


class Runner:
    """An env runner in a thread: episodes of three steps, each of which takes a while."""

    def __init__(self, world: World) -> None:
        self.world, self.died_in = world, ""
        self.thread = ThreadPoolExecutor(1)
        self.loop = asyncio.Runner()
        self.bench = Workbench(self.loop, self._work)

    def exchange(self, *args: Any) -> dict[int, Any]:
        return self.bench.exchange(*args)

    @property
    def in_progress(self) -> int:
        return len(self.bench)

    def lost_task(self) -> str:
        task, self.died_in = self.died_in, ""
        return task

    async def _work(self, batch: Batch) -> Rollouts:
        results = await asyncio.gather(*(self._play(spec) for spec in batch.jobs), return_exceptions=True)
        for result in results:
            if isinstance(result, Killed):
                raise result
        played = [result for result in results if isinstance(result, Trajectory)]
        unfinished = [s for s, result in zip(batch.jobs, results, strict=True) if not isinstance(result, Trajectory)]
        return Rollouts(played, unfinished, ["engine 0 died"] * len(unfinished), self.world.user_error)

    async def _play(self, spec: EpisodeSpec) -> Trajectory:
        world = self.world
        world.asked.append(spec)
        trajectory = Trajectory(spec.task_id, spec.group_id, spec.member, spec.seed, end_cause="terminated")
        for _ in range(STEPS):
            trajectory.steps.append(Step([1], [2], [0.0], world.version, "stop", "", "", ""))
            await asyncio.sleep(world.seconds(spec))
        if spec.task_id in world.deadly:
            self.died_in = spec.task_id
            raise Killed
        if world.engine_deaths and spec.member == 0:
            world.engine_deaths -= 1
            raise ConnectionError
        return trajectory


class World:
    """Env runners, engines and learners."""

    def __init__(self, runners: int = 2, seed: int = 0) -> None:
        self.draw, self.version, self.exported = random.Random(seed), -1, 0
        self.deadly: set[str] = set()
        self.slow: set[str] = set()
        self.engine_deaths, self.user_error = 0, ""
        self.asked: list[EpisodeSpec] = []
        self.members = [Runner(self) for _ in range(runners)]
        self.alive = set(range(runners))

    def seconds(self, spec: EpisodeSpec) -> float:
        return 0.1 if spec.task_id in self.slow else self.draw.random() * 0.01

    # --- `Runners` ---

    @property
    def remote(self) -> int:
        return len(self.members)

    def ids(self) -> list[int]:
        return sorted(self.alive)

    def send(self, runner: int, call: Any) -> Future[Any]:
        return self.members[runner].thread.submit(call, self.members[runner])

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        return list(wait(sent, timeout_s, FIRST_COMPLETED).done)

    def answer(self, sent: Any) -> Any:
        try:
            return sent.result()
        except Killed as error:
            raise RunnerLost from error

    def everybody(self, call: Any, timeout_s: float) -> list[Any]:
        return [self.send(number, call).result() for number in self.ids()]

    def lose(self, runner: int, *, kill: bool) -> None:
        self.alive.discard(runner)

    def come_back(self, patience_s: float) -> bool:
        self.alive = set(range(len(self.members)))
        return True

    def stop(self) -> None:
        for runner in self.members:
            runner.thread.submit(runner.loop.close).result()
            runner.thread.shutdown()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.stop()


class Learner:
    """A run: a stream in its world."""

    def __init__(self, world: World, iterations: int = 8, select: Any = None, **keys: Any) -> None:
        self.world = world
        settings = Settings.from_dict(
            {"stream": True, "staleness": 2, "tasks_per_iteration": 4, "group_size": 2, "seed": 3, **keys}
        )
        recipe = replace(ALGORITHMS["grpo"], select=select)
        self.collector = Collector(world, None, 20.0)  # type: ignore[arg-type]
        self.workers = SimpleNamespace(collector=self.collector, version=None, push=self.push)
        episodes = Episodes(settings, recipe, make_reward(settings), TASKS)
        learners = SimpleNamespace(export_weights=lambda: "weights")
        self.stream = Stream(Sampled(episodes, lambda: self.workers, lambda: learners), iterations)  # type: ignore[arg-type,return-value]
        self.groups: list[int] = []

    def push(self, weights: str, version: int) -> None:
        assert weights == "weights"
        self.world.version = self.workers.version = version

    def learn(self, iterations: int, pause_s: float = 0.0) -> list[Any]:
        batches = []
        for _ in range(iterations):
            experience = self.stream.next(self.stream.iteration)
            assert self.stream.next(self.stream.iteration) is experience
            time.sleep(self.world.draw.random() * pause_s)
            batches.append(experience)
            self.groups += list(dict.fromkeys(t.group_id for t in experience.played))
            self.stream.publish(self.stream.version + 1)
        return batches

    def stop(self) -> None:
        self.stream.close()
        self.stream.join()


def check(batches: Sequence[Any], first: int = 0, most: int = 2) -> list[int]:
    """Every batch is of whole groups within the bound; return the ages of their oldest steps."""
    ages = []
    for version, experience in enumerate(batches, first):
        members = [(t.group_id, t.member) for t in experience.played]
        assert len(set(members)) == len(members) and len({group for group, _ in members}) * 2 == len(members)
        ages.append(version - min(step.policy_version for t in experience.played for step in t.steps))
    assert all(0 <= age <= most for age in ages)
    return ages


@pytest.mark.parametrize("staleness", [1, 2, 4])
@pytest.mark.parametrize("seed", [0, 1])
def test_whole_groups_within_the_bound_none_twice_none_lost(staleness: int, seed: int) -> None:
    world = World(seed=seed)
    run = Learner(world, staleness=staleness)
    batches = run.learn(8, pause_s=0.05)
    run.stop()
    ages = check(batches, most=staleness)
    assert max(ages) > 0, "something was sampled beside the learners"
    assert sorted(run.groups) == list(range(32)), "the run's last iteration leaves nothing over"
    assert len(world.asked) == 64 and {t.task_id for t in batches[0].played} <= set(TASKS)
    world.stop()


def test_a_slow_task_is_learned_from_in_its_turn(world: World) -> None:
    run = Learner(world, staleness=4)
    world.slow = {TASKS[3]}
    batches = run.learn(8, pause_s=0.02)
    check(batches, most=4)
    run.stop()
    mixed = [t for e in batches for t in e.played if len({step.policy_version for step in t.steps}) > 1]
    assert mixed, "weights changed in the midst of episodes"
    assert sorted(run.groups) == list(range(32))
    window = Admission(4, 4).window
    assert all(abs(place - group) < window for place, group in enumerate(run.groups))


def test_what_dies_is_played_again_and_the_others_go_on(world: World) -> None:
    run = Learner(world)
    world.engine_deaths = 3
    world.deadly = {run.stream._group(5, 0).specs[0].task_id}
    batches = run.learn(3)
    check(batches)
    failed = [t for e in batches for t in e.played if t.failed]
    assert {t.task_id for t in failed} == world.deadly and failed[0].end_cause.startswith("env_died: ")
    assert sum(e.metrics["rollout/resampled_episodes"] for e in batches) >= 3
    assert sorted(run.groups) == sorted(set(run.groups))
    assert run.collector.deaths[failed[0].task_id] in (2, 3), "the task's next group may have begun, 12 groups later"
    run.stop()


def test_a_user_error_reaches_the_learner(world: World) -> None:
    run = Learner(world)
    world.engine_deaths, world.user_error = 10**6, "data folder is missing"
    with pytest.raises(InputError, match="data folder is missing"):
        run.learn(1)
    run.stop()


def test_an_evaluation_goes_on_beside_a_stream(world: World) -> None:
    run = Learner(world)
    run.learn(2)
    specs = [EpisodeSpec(f"e{number}", number, 0, number) for number in range(6)]
    with run.stream.paused():
        assert world.version == run.stream.version == 2
        assert [t.task_id for t in run.collector.collect(specs, 1.0).answers] == [s.task_id for s in specs]
        assert world.version == 2
    check(run.learn(3), first=2)
    run.stop()


def test_dynamic_sampling_takes_further_groups(world: World) -> None:
    def odd(usable: Sequence[Trajectory], settings: Settings, rng: Any) -> Selected:
        """Every third group teaches nothing."""
        good = list(dict.fromkeys(t.group_id for t in usable if t.group_id % 3))[:4]
        return Selected(np.array([t.group_id in good for t in usable]), 4 - len(good))

    run = Learner(world, select=odd)
    batches = run.learn(8)
    run.stop()
    check(batches)
    assert all(len({t.group_id for t in experience.chosen}) == 4 for experience in batches)
    assert len(run.groups) == len(set(run.groups)) > 40 and run.stream.place.position == len(run.groups)


def test_dynamic_sampling_gives_up(world: World) -> None:
    def nothing(usable: Sequence[Trajectory], settings: Settings, rng: Any) -> Selected:
        return Selected(np.zeros(len(usable), dtype=bool), 4)

    run = Learner(world, select=nothing, max_generation_batches=3)
    with pytest.raises(SelectionError, match="0 of 12 tasks"):
        run.learn(1)
    assert run.stream.in_flight()[:36:3] == list(range(12)), "what was taken for the iteration is not lost"
    run.stop()


def test_a_resumed_stream_plays_what_was_in_flight_again_and_nothing_twice(world: World) -> None:
    run = Learner(world)
    run.learn(4, pause_s=0.02)
    place, before, oldest = run.stream.place, run.stream.in_flight(), run.stream.oldest()
    numbers = before[::3]
    assert numbers and place.position == 16 and oldest >= 2
    asked = {s.group_id: s.seed for s in world.asked if s.member == 0}
    run.stop()

    world.asked.clear()
    again = Learner(world)
    again.stream.begin(4, 4, Place(place.position, place.bad), before)
    assert again.stream.in_flight() == before and again.stream.oldest() == oldest
    check(again.learn(4), first=4)
    again.stop()
    assert sorted(run.groups + again.groups) == list(range(32))
    assert {s.group_id: s.seed for s in world.asked if s.member == 0}.items() >= {
        number: seed for number, seed in asked.items() if number in numbers
    }.items(), "with their old seeds"


def test_a_stream_that_begins_anew_forgets_what_was_being_played(world: World) -> None:
    run = Learner(world)
    run.learn(2)
    run.stream.begin(0, 0, Place())
    assert not [thread for thread in threading.enumerate() if thread.name == "rollouts"]
    run.groups.clear()
    check(run.learn(8))
    assert sorted(run.groups) == list(range(32)) and not any(runner.in_progress for runner in world.members)
    run.stop()


def test_who_brings_runners_back_is_waited_for_before_a_stream_begins_anew(world: World, monkeypatch: Any) -> None:
    """It gives engines the last weights as well, which are then those of another run."""
    released, restored = threading.Event(), threading.Event()
    run = Learner(world)

    def restore(events: list[str]) -> bool:
        released.wait(10)
        restored.set()
        return False

    monkeypatch.setattr(run.collector, "restore", restore)
    world.engine_deaths = 1
    run.stream._start()
    while run.stream._restoring is None:
        time.sleep(0.01)
    threading.Timer(0.3, released.set).start()
    run.stream.begin(0, 0, Place())
    assert restored.is_set() and run.stream._restoring is None
    run.stop()


def test_what_is_lost_while_others_are_brought_back_is_brought_back_next(world: World, monkeypatch: Any) -> None:
    released, calls = threading.Event(), list[int]()
    run = Learner(world, tasks_per_iteration=2)

    def restore(events: list[str]) -> bool:
        calls.append(len(calls))
        released.wait(10)
        return False

    monkeypatch.setattr(run.collector, "restore", restore)
    world.engine_deaths = 3  # of groups that are played side by side
    threading.Timer(0.5, released.set).start()
    check(run.learn(3))
    assert calls == [0, 1]
    run.stop()


def test_a_stream_whose_env_runners_are_gone_for_good_says_so(world: World, monkeypatch: Any) -> None:
    run = Learner(world)
    world.alive.clear()
    monkeypatch.setattr(world, "come_back", lambda patience_s: False)
    with pytest.raises(RolloutError, match="no env runner is alive, and none came back in 6 attempts"):
        run.learn(1)
    run.stop()
