"""Env runners for the collector: numbers, calls that are sent and answered later, and losses.

`RunnerActors` are RLlib's actors. `InProcessRunner` is the one runner in the driver's process (local mode), whose calls
run when they are waited for. Calls are a method's name, or a function or class of this module, so that they are small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from rl_agents.errors import described
from rl_agents.rollout.recording import Recorder
from rl_agents.rollout.request_queue import JobBatch
from rl_agents.store.trajectory_store import PoolSink

#: A call to an env runner; its argument is the runner.
Call = Callable[[Any], Any]
#: Seconds between two checks which runners are back.
PING_S = 1.0


class RunnerLost(Exception):
    """The runner of a call has died."""


class RunnerActors:
    """RLlib's group of env runner actors; `InProcessRunner` has the same methods.

    Attributes:
        causes: why runners cannot be started again, by runner.
    """

    def __init__(self, group: Any) -> None:
        self.causes: dict[int, str] = {}
        self._group, self._manager = group, group._worker_manager
        #: Pings of missing runners, by runner.
        self._pings: dict[int, Any] = {}

    @property
    def remote(self) -> int:
        """Number of runners, including dead ones; 0: there is only the one in this process."""
        count: int = self._group.num_remote_env_runners()
        return count

    def ids(self) -> list[int]:
        return list(self._group.healthy_env_runner_ids())

    def send(self, runner: int, call: Call) -> Any:
        """Send a call to a runner; the result is for `wait` and `answer`."""
        return self._manager.actors()[runner].apply.remote(call)

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        """Wait until one of ``sent`` is answered or its runner is dead; return all such calls, none if time is up."""
        ready, others = ray.wait(list(sent), timeout=timeout_s)
        return ready + ray.wait(others, num_returns=len(others), timeout=0)[0] if ready and others else ready

    def answer(self, sent: Any) -> Any:
        try:
            return ray.get(sent)
        except RayError as error:
            raise RunnerLost(str(error)) from error

    def lose(self, runner: int, *, kill: bool) -> None:
        """Send a runner no calls until it is back; ``kill`` one that hangs, so that it is restarted."""
        if kill:
            ray.kill(self._manager.actors()[runner], no_restart=False)
        self._manager.set_actor_state(runner, False)

    def tell(self, runners: Sequence[int], call: Call) -> None:
        """Send a call that runs before all later ones; do not wait for the answer."""
        for runner in runners:
            self.send(runner, call)

    def absent(self) -> list[int]:
        return [runner for runner in self._manager.actor_ids() if not self._manager.is_actor_healthy(runner)]

    def come_back(self, wait_s: float, late: Collection[int] = ()) -> list[int]:
        """Return lost runners that are back; wait until all are except the ``late`` ones, or the time is over.

        Each missing runner has a ping, which a restarting runner answers when it is ready.
        """
        end, back = time.monotonic() + wait_s, list[int]()
        while absent := self.absent():
            for runner in absent:
                if runner not in self._pings:
                    self._pings[runner] = self._manager.actors()[runner].ping.remote()
            before = len(back)
            left = max(0.0, end - time.monotonic())
            ready = ray.wait(list(self._pings.values()), timeout=min(left, PING_S))[0]
            for runner in [runner for runner, ping in self._pings.items() if ping in ready]:
                if self._answers(runner, self._pings.pop(runner)):
                    self._manager.set_actor_state(runner, True)
                    back.append(runner)
            if time.monotonic() >= end or not set(self.absent()) - set(late):
                break
            if ready and len(back) == before:  # the call failed at once, because Ray has not restarted it yet
                time.sleep(min(left, PING_S))
        return back

    def _answers(self, runner: int, ping: Any) -> bool:
        try:
            ray.get(ping)
        except RayError as error:
            if "creation task" in (text := str(error)):  # Ray does not try again
                self.causes[runner] = text.strip().splitlines()[-1]
            return False
        return True


@dataclass(eq=False)
class Future:
    """A call of the runner in this process, which runs when it is waited for."""

    call: Call
    done: bool = False
    value: Any = None


class InProcessRunner:
    remote = 0

    def __init__(self, runner: Any) -> None:
        self._runner, self.causes = runner, dict[int, str]()

    def ids(self) -> list[int]:
        return [0]

    def send(self, runner: int, call: Call) -> Any:
        return Future(call)

    def wait(self, sent: Sequence[Any], timeout_s: float | None) -> list[Any]:
        """Make the calls; raise what the runner raises, and do not repeat that call."""
        for later in sent:
            if not later.done:
                later.done = True
                later.value = later.call(self._runner)
        return list(sent)

    def answer(self, sent: Any) -> Any:
        """Return the answer; raise `RunnerLost` for an interrupted call."""
        if sent.value is None:
            raise RunnerLost("interrupted")
        return sent.value

    def lose(self, runner: int, *, kill: bool) -> None:
        """Do nothing: the runner is in this process."""

    def tell(self, runners: Sequence[int], call: Call) -> None:
        call(self._runner)

    def absent(self) -> list[int]:
        return []

    def come_back(self, wait_s: float, late: Collection[int] = ()) -> list[int]:
        return []


Runners = RunnerActors | InProcessRunner


def runners_of(group: Any) -> Runners:
    return RunnerActors(group) if group.num_remote_env_runners() else InProcessRunner(group.local_env_runner)


def heard(runners: Runners, asked: dict[int, Any], wait_s: float) -> dict[int, Any]:
    """Return the answers that arrive in time, with `RunnerLost` for dead runners, and remove them from ``asked``.

    Args:
        asked: results of `send`, by runner.
    """
    answers, end = dict[int, Any](), time.monotonic() + wait_s
    while asked and (ready := runners.wait(list(asked.values()), max(0.0, end - time.monotonic()))):
        for runner in [runner for runner, call in asked.items() if call in ready]:
            try:
                answers[runner] = runners.answer(asked.pop(runner))
            except RunnerLost as lost:
                answers[runner] = lost
    return answers


def exchange(
    runner: Any, batches: Sequence[JobBatch], wait_s: float, enough: int | None, drop: Collection[int], report: bool
) -> tuple[dict[int, Any], dict[int, int], dict[int, str]] | str:
    """Give a runner batches and fetch answers, see `rl_agents.rollout.request_queue.RequestQueue.exchange`.

    Returns:
        The answers by the batches' numbers, the number of completed jobs of those still in progress, and failures of
        engine actors by engine. With ``report`` what the runner raises as a line: RLlib would keep it in the actor's
        log, and end the actor after a minute.
    """
    recorded = any(batch.options.get("attempt") is not None for batch in batches)
    if report and (runner.engine is None or (recorded and runner.recorder is None)):
        return {}, {}, {}  # Ray has restarted it unnoticed: it has none of its batches, and is equipped before new ones
    try:
        answers = runner.exchange(batches, wait_s, enough, drop)
        failures, runner.engine_failures = runner.engine_failures, {}
        return answers, runner.in_progress, failures
    except Exception as error:
        if not report:
            raise
        return " ".join(described(error).split())


@dataclass(frozen=True)
class SetRecorder:
    """Lets a runner record its samples, unless it does so already.

    Attributes:
        sink: creates the sink in the runner's process, once for each pool.
        recorded: calls from before a crash, by seed, or a reference to them.
        resumes: how often the run was resumed.
        pool: name of the pool, different each time that a pool is opened.
    """

    sink: Callable[[], PoolSink]
    recorded: Any
    resumes: int
    pool: str

    def __call__(self, runner: Any) -> None:
        before: Recorder | None = runner.recorder
        if before is not None and (before.pool, before.resumes) == (self.pool, self.resumes):
            return
        recorded = ray.get(self.recorded) if isinstance(self.recorded, ray.ObjectRef) else self.recorded
        sink = before.sink if before is not None and before.pool == self.pool else self.sink()
        runner.recorder = Recorder(sink, recorded, self.pool, self.resumes)
