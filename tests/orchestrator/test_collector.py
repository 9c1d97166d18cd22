"""Who is blamed when env runners die: runners in this process that die where a task says so."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayError

from rl_agents.data.trajectory import EpisodeSpec, Trajectory
from rl_agents.errors import EpisodesFail, RolloutError
from rl_agents.orchestrator import env_runner_handles
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.env_runner_handles import RunnerLost, SetRecorder, runners_of
from rl_agents.orchestrator.fault_tolerance import COME_BACK_S, MAX_DEATHS
from rl_agents.orchestrator.runner_pump import Lost
from rl_agents.rollout.agent_loop import Rollouts
from rl_agents.rollout.env_runner import TextEnvRunner
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.request_queue import JobBatch
from rl_agents.store.trajectory_store import PoolError


class Runner:
    """Plays tasks in order and dies in deadly ones; its successor knows in which."""

    def __init__(self, deadly: set[str], tells: bool = True) -> None:
        self.deadly, self.tells, self.died_in, self.deaths = deadly, tells, "", 0
        self.engine, self.recorder, self.engine_failures = "the engine", None, dict[int, str]()

    def exchange(self, batches: list[JobBatch], *_: Any) -> dict[int, Any]:
        return {batch.number: getattr(self, batch.method)(batch.jobs, **batch.options) for batch in batches}

    @property
    def in_progress(self) -> dict[int, int]:
        return {}

    def sample(
        self, specs: list[EpisodeSpec], temperature: float | None = None, attempt: int | None = None
    ) -> Rollouts:
        for spec in specs:
            if spec.task_id in self.deadly:
                self.died_in, self.deaths = spec.task_id, self.deaths + 1
                raise ConnectionError
        return Rollouts([Trajectory(s.task_id, s.group_id, s.member, s.seed) for s in specs])

    def lost_task(self) -> str:
        task, self.died_in = self.died_in if self.tells else "", ""
        return task


class Group:
    """Env runners in this process; what they are asked is done at once."""

    def __init__(self, runners: list[Runner]) -> None:
        self.runners, self.healthy, self.causes = runners, set(range(len(runners))), dict[int, str]()
        self.remote = len(runners)

    def ids(self) -> list[int]:
        return sorted(self.healthy)

    def send(self, runner: int, call: Any) -> Any:
        try:
            return SimpleNamespace(value=call(self.runners[runner]))
        except ConnectionError:
            return SimpleNamespace(value=None)

    def wait(self, sent: Any, timeout_s: float | None) -> list[Any]:
        return list(sent)

    def answer(self, sent: Any) -> Any:
        if sent.value is None:
            raise RunnerLost
        return sent.value

    def lose(self, runner: int, *, kill: bool) -> None:
        self.healthy.discard(runner)

    def tell(self, runners: Any, call: Any) -> None:
        for number in runners:
            call(self.runners[number])

    def absent(self) -> list[int]:
        return [number for number in range(len(self.runners)) if number not in self.healthy]

    def come_back(self, wait_s: float, late: Any = ()) -> list[int]:
        back, self.healthy = self.absent(), set(range(len(self.runners)))
        return back


def specs(count: int) -> list[EpisodeSpec]:
    return [EpisodeSpec(f"t{i}", i, member, 7) for i in range(count) for member in range(2)]


def test_tasks_in_which_runners_die_fail_and_the_others_are_played() -> None:
    deadly = {f"t{i}" for i in range(0, 32, 4)}
    runners = [Runner(deadly), Runner(deadly)]
    collector = Collector(Group(runners), None, 10.0)
    collected = collector.collect(specs(32))
    assert [(t.task_id, t.member) for t in collected.answers] == [(s.task_id, s.member) for s in specs(32)]
    assert {t.task_id for t in collected.answers if t.failed} == deadly
    assert all(t.end_cause.startswith("env_died: ") for t in collected.answers if t.failed)
    assert sum(runner.deaths for runner in runners) == MAX_DEATHS * len(deadly)
    # From now on nobody dies for them any more, once a runner was lost.
    assert not any(t.failed for t in collector.collect([s for s in specs(32) if s.task_id not in deadly]).answers)


def test_deaths_that_no_task_explains_end_the_run_as_before() -> None:
    collector = Collector(Group([Runner({"t1"}, tells=False)]), None, 10.0)
    with pytest.raises(RolloutError, match="missing after 6 rounds"):
        collector.collect(specs(4))


def test_an_environment_that_always_ends_its_process_ends_the_run() -> None:
    runner = Runner({f"t{i}" for i in range(64)})
    with pytest.raises(EpisodesFail, match=r"^no episode was completed; 3 tasks, such as t0: env_died: "):
        Collector(Group([runner]), None, 10.0).collect(specs(64))
    assert runner.deaths == 3 * MAX_DEATHS


def test_what_a_runner_raises_is_said_and_it_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLlib would write it into the actor's log only, and sleep for a minute before it ends the actor."""
    group, killed = Group([Runner(set())]), list[int]()
    play = group.runners[0].sample

    def fail(*args: Any, **options: Any) -> Rollouts:
        group.runners[0].sample = play  # type: ignore[method-assign]
        raise TypeError("a template\nthat breaks")

    group.runners[0].sample = fail  # type: ignore[method-assign]
    monkeypatch.setattr(group, "lose", lambda runner, *, kill: killed.extend([runner] * kill))
    collected = Collector(group, None, 10.0).collect(specs(4))
    assert len(collected.answers) == 8 and killed == [0]
    (event,) = collected.events
    assert event.startswith("env runner 0 failed with 8 jobs: TypeError: a template that breaks (test_collector.py:")


def test_a_runner_that_ray_restarted_unnoticed_gets_its_recorder_before_it_plays() -> None:
    """It has an engine already, and its calls would be in no pool."""
    runner = Runner(set())
    collector = Collector(Group([runner]), None, 10.0)
    collector.record(SetRecorder(SimpleNamespace, {}, 0, "pool"))
    runner.recorder = None
    collected = collector.collect(specs(4), record=True)
    assert runner.recorder is not None and collected.resampled == 8
    assert collected.events == ["env runner 0 died with 8 jobs"]


class Hanging(Group):
    """The first exchange with runner 0 never ends; who is killed is back at once."""

    def __init__(self) -> None:
        super().__init__([Runner(set())])
        self.killed, self.hangs = 0, True

    def send(self, runner: int, call: Any) -> Any:
        return "never" if self.hangs else super().send(runner, call)

    def wait(self, sent: Any, timeout_s: float | None) -> list[Any]:
        found = [one for one in sent if one != "never"]
        if not found:
            assert timeout_s is not None, "nobody waits for ever"
            time.sleep(timeout_s)
        return found

    def lose(self, runner: int, *, kill: bool) -> None:
        super().lose(runner, kill=kill)
        self.killed, self.hangs = self.killed + kill, False


def test_a_runner_that_hangs_in_what_was_dropped_is_replaced_when_others_need_it() -> None:
    group = Hanging()
    collector = Collector(group, None, 1.0)
    first = collector.pump.submit(0, "sample", specs(1), {})
    assert collector.pump.fetch([first], 0.01) == {}
    collector.pump.drop([first])
    collected = collector.collect(specs(4))
    assert len(collected.answers) == 8 and group.killed == 1
    assert collected.events == ["env runner 0 did not finish 8 jobs within 1 s (sample_timeout_s)"]


def test_time_in_which_nobody_fetches_is_not_the_runners() -> None:
    group = Hanging()
    collector = Collector(group, None, 1.0)
    number = collector.pump.submit(0, "sample", specs(1), {})
    for _ in range(3):
        assert collector.pump.fetch([number], 0.01) == {}
        time.sleep(0.5)  # somebody gives engines weights
    assert not group.killed
    assert isinstance(collector.pump.fetch([number], 60.0)[number], Lost) and group.killed == 1


class Slow(Group):
    """Runner 0 dies once, and takes long to come back."""

    def __init__(self) -> None:
        super().__init__([Runner({"t0"}), Runner(set())])
        self.back, self.waits = False, list[float]()

    def come_back(self, wait_s: float, late: Any = ()) -> list[int]:
        self.waits.append(wait_s if set(self.absent()) - set(late) else 0.0)
        if not self.back:
            return []
        self.runners[0].deadly = set()
        return super().come_back(wait_s)


def test_a_runner_that_takes_long_to_come_back_is_named_once_and_joins_later() -> None:
    group = Slow()
    collector = Collector(group, None, 10.0)
    collected = collector.collect(specs(4))
    assert len(collected.answers) == 8 and not any(t.failed for t in collected.answers)
    assert collected.events[-1] == "env runner 0 is not back after 10 s; the others continue without it"
    assert group.waits == [COME_BACK_S]
    assert not collector.collect(specs(4)).events and group.ids() == [1]
    assert sum(group.waits) == COME_BACK_S, "it is not waited for again"
    group.back = True
    collector.collect(specs(4))
    assert group.ids() == [0, 1] and collector.fault_tolerance.deaths == {"t0": 1}


def test_why_a_runner_cannot_be_started_again_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(ping: Any) -> Any:
        cause = "ray::TextEnvRunner.__init__() (pid=7)\n  File ...\nOSError: [Errno 28] No space left on device: '/tmp'"
        raise RayError(f"The actor died because of an error raised in its creation task, {cause}")

    ping = SimpleNamespace(remote=lambda: "the ping")
    manager = SimpleNamespace(
        actors=lambda: {1: SimpleNamespace(ping=ping)}, actor_ids=lambda: [1], is_actor_healthy=lambda runner: False
    )
    group = SimpleNamespace(
        _worker_manager=manager, num_remote_env_runners=lambda: 1, healthy_env_runner_ids=lambda: list[int]()
    )
    monkeypatch.setattr(env_runner_handles, "ray", SimpleNamespace(wait=lambda pings, timeout: (pings, []), get=get))
    fault_tolerance = Collector(runners_of(group), None, 10.0).fault_tolerance
    fault_tolerance.welcome(0.0)
    late = "env runner 1 is not back after 120 s (OSError: [Errno 28] No space left on device: '/tmp')"
    assert fault_tolerance.overdue(120.0) == [f"{late}; no env runner is alive"]


@pytest.mark.parametrize("error", [PoolError("the disk is full"), TimeoutError()])
def test_a_pool_that_cannot_be_written_ends_no_env_runner(error: Exception) -> None:
    """What its method raises would end the actor."""

    class FullDisk:
        def add(self, *records: Any) -> Any:
            raise AssertionError("nothing was recorded")

        def flush(self, timeout_s: float) -> None:
            raise error

    runner = SimpleNamespace(recorder=Recorder(FullDisk()))
    assert TextEnvRunner.flush_recorder(runner, 1.0) is False  # type: ignore[arg-type]
