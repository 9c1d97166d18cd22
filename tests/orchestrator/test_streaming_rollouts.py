"""A stream over env runners that are threads with event loops: real exchanges, random times, losses, checkpoints."""

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from orchestrator.threads import TASKS, World, eventually

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.data.difficulty import Difficulty
from rl_agents.data.failures import BadTasks
from rl_agents.data.selection import Selected, SelectionError
from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import InputError, RolloutError
from rl_agents.orchestrator import fault_tolerance, streaming_rollouts
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.rollout_batch import Episodes, TaskPosition
from rl_agents.orchestrator.rollout_buffer import Sampled
from rl_agents.orchestrator.staleness_control import Admission
from rl_agents.orchestrator.streaming_rollouts import StreamBuffer
from rl_agents.rewards.base import make_reward


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.stop()


class Learner:
    """A run: a stream in its world."""

    def __init__(self, world: World, iterations: int = 8, select: Any = None, reward: Any = None, **keys: Any) -> None:
        self.world = world
        settings = Settings.from_dict(
            {"stream": True, "max_staleness": 2, "tasks_per_iteration": 4, "group_size": 2, "seed": 3, **keys}
        )
        recipe = replace(ALGORITHMS["grpo"], select=select)
        self.collector = Collector(world, None, 20.0)  # type: ignore[arg-type]
        self.workers = SimpleNamespace(collector=self.collector, version=None, push=self.push)
        episodes = Episodes(settings, recipe, reward or make_reward(settings), TASKS)
        learners = SimpleNamespace(export_weights=lambda: "weights")
        self.stream = StreamBuffer(Sampled(episodes, lambda: self.workers, lambda: learners), iterations)  # type: ignore[arg-type,return-value]
        self.groups: list[int] = []
        self.engines = threading.Event()
        self.engines.set()

    def push(self, weights: str, version: int) -> None:
        assert weights == "weights"
        assert self.engines.wait(60)
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


@pytest.mark.parametrize(("staleness", "seed"), [(1, 0), (4, 1)])
def test_whole_groups_within_the_bound_none_twice_none_lost(staleness: int, seed: int) -> None:
    world = World(seed=seed)
    run = Learner(world, max_staleness=staleness)
    batches = run.learn(8, pause_s=0.05)
    run.stop()
    ages = check(batches, most=staleness)
    assert max(ages) > 0, "something was sampled beside the learners"
    assert sorted(run.groups) == list(range(32)), "the run's last iteration leaves nothing over"
    assert len(world.asked) == 64 and {t.task_id for t in batches[0].played} <= set(TASKS)
    world.stop()


def test_a_slow_task_is_learned_from_in_its_turn(world: World) -> None:
    run = Learner(world, max_staleness=4)
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
    world.deadly = {run.stream._make(5, 0).specs[0].task_id}
    batches = run.learn(3)
    check(batches)
    failed = [t for e in batches for t in e.played if t.failed]
    assert {t.task_id for t in failed} == world.deadly and failed[0].end_cause.startswith("env_died: ")
    assert sum(e.metrics["rollout/resampled_episodes"] for e in batches) >= 3
    assert sorted(run.groups) == sorted(set(run.groups))
    assert run.collector.fault_tolerance.deaths[failed[0].task_id] in (2, 3), (
        "the task's next group may have begun, 12 groups later"
    )
    run.stop()


def test_nobody_dies_in_a_task_that_is_known_to_be_deadly(world: World) -> None:
    """As after a resumption: two groups of it may be in flight when that becomes known."""
    run = Learner(world)
    (task,) = world.deadly = {run.stream._make(1, 0).specs[0].task_id}
    run.collector.fault_tolerance.deaths[task] = 2
    failed = [t for e in run.learn(1) for t in e.played if t.failed]
    assert {t.task_id for t in failed} == world.deadly and run.collector.fault_tolerance.deaths[task] == 2
    assert task not in {spec.task_id for spec in world.asked}
    run.stop()


def test_weights_on_their_way_do_not_hold_what_is_finished(world: World) -> None:
    """Engines take long to take them: they let their calls end first."""
    run, world.slow = Learner(world), set(TASKS)
    run.learn(1)
    run.stream.next(1)
    assert eventually(lambda: run.stream._admission.admitted == 16), "the first weights are there"
    run.engines.clear()
    run.stream.publish(2)
    assert eventually(lambda: run.stream._admission.finished >= set(range(8, 16))), "all that were being played"
    assert run.stream.next(2) and world.version == 1
    run.engines.set()
    run.stream.publish(3)
    with run.stream.paused():
        assert world.version == 3
    run.stop()


class Judging:
    """A reward that takes a while, and refuses at first."""

    waits = True

    def __init__(self, seconds: float, refusals: int = 0) -> None:
        self.seconds, self.refusals, self.most, self.busy, self.done = seconds, refusals, 0, 0, 0
        self.lock = threading.Lock()

    def apply(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        with self.lock:
            self.busy += 1
            self.most = max(self.most, self.busy)
        time.sleep(self.seconds)
        with self.lock:
            self.busy, self.done, self.refusals = self.busy - 1, self.done + 1, self.refusals - 1
            if self.refusals >= 0:
                raise InputError("the judge answered none of 2 questions: HTTP 500")
        for trajectory in trajectories:
            assert "judged" not in trajectory.facts, "once"
            trajectory.facts["judged"] = True
        return {}

    def metrics(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {"reward/judged": float(sum("judged" in t.facts for t in trajectories))}


def test_the_learner_finds_groups_that_are_judged_already(world: World) -> None:
    reward = Judging(0.5)
    run = Learner(world, reward=reward)
    for iteration in range(4):
        experience = run.stream.next(iteration)
        assert experience.metrics["reward/judged"] == 8 == len(experience.played)
        while reward.done < 4 * (iteration + 2):  # it learns, and asks for nothing meanwhile
            time.sleep(0.01)
        run.stream.publish(iteration + 1)
    assert reward.most > 1
    run.stop()


def test_a_judge_that_fails_now_and_then_is_asked_again_and_one_that_always_does_ends_the_run(world, monkeypatch):
    monkeypatch.setattr(streaming_rollouts, "AGAIN_S", 0.01)
    run = Learner(world, reward=Judging(0.01, refusals=3))
    assert run.learn(1)[0].metrics["reward/judged"] == 8
    run.stop()
    broken = Learner(world, reward=Judging(0.01, refusals=10**6))
    with pytest.raises(InputError, match="the judge answered none of 2 questions"):
        broken.learn(1)
    broken.stop()


class Once(set[str]):
    """Tasks that end one process each: what is lost may be played again before a test looks."""

    def __contains__(self, task: object) -> bool:
        try:
            self.remove(task)  # type: ignore[arg-type]
        except KeyError:
            return False
        return True


def test_who_takes_long_to_come_back_is_not_waited_for_and_gets_work_when_it_is(world, monkeypatch, capsys) -> None:
    back, come_back = threading.Event(), world.come_back
    monkeypatch.setattr(world, "come_back", lambda *waits: come_back(*waits) if back.is_set() else [])
    monkeypatch.setattr(fault_tolerance, "COME_BACK_S", 0.2)
    run = Learner(world, iterations=20)
    run.learn(1)
    lost = run.stream._make(13, 0).specs[0].task_id
    world.deadly = Once({lost})
    assert eventually(lambda: len(world.alive) < 2)
    check(run.learn(5), first=1)
    assert len(world.alive) == 1
    back.set()
    assert eventually(lambda: len(world.alive) == 2)
    check(run.learn(4), first=6)
    run.stop()
    assert capsys.readouterr().out.count("is not back after 0 s; the others continue without it") == 1


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
    assert run.stream.in_flight()[:48:4] == list(range(12)), "what was taken for the iteration is not lost"
    run.stop()


def test_a_resumed_stream_plays_what_was_in_flight_again_and_nothing_twice(world: World) -> None:
    run = Learner(world)
    run.learn(4, pause_s=0.02)
    place, before, oldest = run.stream.place, run.stream.in_flight(), run.stream.oldest()
    numbers = before[::4]
    assert numbers and place.position == 16 and oldest >= 2
    asked = {s.group_id: s.seed for s in world.asked if s.member == 0}
    run.stop()

    world.asked.clear()
    again = Learner(world)
    again.stream.begin(4, 4, TaskPosition(place.position, place.bad), before)
    assert again.stream.in_flight() == before and again.stream.oldest() == oldest
    check(again.learn(4), first=4)
    again.stop()
    assert sorted(run.groups + again.groups) == list(range(32))
    assert {s.group_id: s.seed for s in world.asked if s.member == 0}.items() >= {
        number: seed for number, seed in asked.items() if number in numbers
    }.items(), "with their old seeds"


def test_a_curriculum_draws_for_a_stream_and_a_resumed_one_keeps_the_drawn_tasks(world: World) -> None:
    easy, state = set(TASKS[:6]), Difficulty(0.2, {task: (16.0, 16.0) for task in TASKS[:6]})
    run = Learner(world, iterations=10)
    run.stream.begin(0, 0, TaskPosition(difficulty=state))
    run.learn(4)
    place, before = run.stream.place, run.stream.in_flight()
    tasks = dict(zip(before[::4], before[3::4], strict=True))
    run.stop()
    assert place.difficulty is not None and len(place.difficulty.counts) > len(easy)
    assert sum(s.task_id in easy for s in world.asked) <= 0.4 * len(world.asked), "solved tasks only in turn"

    again = Learner(world)
    again.stream.begin(4, 4, TaskPosition(place.position, place.bad), before)
    assert {n: group.specs[0].task_id for n, group in again.stream._table.items()} == tasks
    bad = BadTasks({tasks[before[0]]: "env_died"})
    again.stream.begin(4, 4, TaskPosition(place.position, bad), before)
    assert again.stream._table[before[0]].specs[0].task_id != tasks[before[0]], "it is no longer sampled"
    again.stop()


def test_a_stream_that_begins_anew_forgets_what_was_being_played(world: World) -> None:
    run = Learner(world)
    run.learn(2)
    run.stream.begin(0, 0, TaskPosition())
    assert not [thread for thread in threading.enumerate() if thread.name == "rollouts"]
    run.groups.clear()
    check(run.learn(8))
    assert sorted(run.groups) == list(range(32)) and not any(runner.in_progress for runner in world.members)
    run.stop()


def test_who_brings_engines_back_is_waited_for_before_a_stream_begins_anew(world: World, monkeypatch: Any) -> None:
    """It gives engines the last weights as well, which are then those of another run."""
    entered, released, restored = threading.Event(), threading.Event(), threading.Event()
    run = Learner(world)

    def restore() -> None:
        entered.set()
        released.wait(120)
        restored.set()

    monkeypatch.setattr(run.collector.fault_tolerance, "restore_engines", restore)
    world.engine_deaths = 1
    run.stream._start()
    assert entered.wait(60)
    threading.Timer(0.3, released.set).start()
    run.stream.begin(0, 0, TaskPosition())
    assert restored.is_set() and not [thread for thread in threading.enumerate() if thread.name == "rollouts"]
    run.stop()


def test_what_is_lost_while_others_are_brought_back_is_brought_back_next(world: World, monkeypatch: Any) -> None:
    entered, released, calls = threading.Event(), threading.Event(), list[int]()
    run = Learner(world)

    def restore() -> None:
        calls.append(len(calls))
        entered.set()
        released.wait(120)

    monkeypatch.setattr(run.collector.fault_tolerance, "restore_engines", restore)
    world.engine_deaths = 3
    run.stream._start()
    assert entered.wait(60) and eventually(lambda: not world.engine_deaths)
    assert eventually(lambda: len(run.stream._admission.finished) >= 9), "the others wait for nobody"
    released.set()
    check(run.learn(3))
    assert calls == [0, 1], "once for the first loss, once for all that came while it was mended"
    run.stop()


def test_a_stream_whose_env_runners_are_gone_for_good_says_so(world: World, monkeypatch: Any) -> None:
    run = Learner(world)
    world.alive.clear()
    monkeypatch.setattr(world, "come_back", lambda *waits: [])
    monkeypatch.setattr(fault_tolerance, "COME_BACK_S", 0.1)
    monkeypatch.setattr(fault_tolerance, "RESTART_PATIENCE_S", 0.2)
    with pytest.raises(RolloutError, match=r"2 of 2 jobs missing after 6 rounds.*no env runner is alive"):
        run.learn(1)
    run.stop()
