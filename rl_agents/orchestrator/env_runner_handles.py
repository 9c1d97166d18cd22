"""Env runners for the collector: numbers, calls that are sent and answered later, and losses.

`RunnerActors` are RLlib's actors. `InProcessRunner` is the one runner in the driver's process (local mode), whose calls
run when they are waited for. Calls are a method's name, or a function or class of this module, so that they are small.

With ``placement=colocate`` each runner has an engine in its process, which lives and dies with it (`RunnerEngines`).
The call `HostEngine` gives a runner an engine with certain weights. A runner without an engine builds it, a runner with
other weights loads these, and otherwise nothing happens. The call is made at the start, with new weights, after losses,
and to every runner that comes back (`rl_agents.orchestrator.fault_tolerance.FaultTolerance`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import ObjectLostError, RayError

from rl_agents.errors import LearnerLost, described
from rl_agents.inference.base import EngineError, EngineSettings, NoEngine
from rl_agents.inference.client import brief
from rl_agents.inference.engine_group import START_S, CallOutcome, Packed, stored
from rl_agents.inference.weights import unpack
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


@dataclass(frozen=True)
class HostEngine:
    """Gives a runner an engine with these weights in its own process (``placement=colocate``).

    Attributes:
        settings: of the engine, if it has to be built.
        weights: references to the buckets; None: the checkpoint's.
        number: of the push; an engine that has received it already does not load again.
    """

    settings: EngineSettings
    weights: Any
    version: int
    number: int

    def __call__(self, runner: Any) -> CallOutcome:
        """Return the outcome, because an exception would end the runner."""
        dead = getattr(runner.engine, "dead", None)
        if dead is not None:
            return CallOutcome("dead", dead)
        try:
            packed = None
            if self.weights is not None and runner.pushes != self.number:
                packed = ray.get(self.weights)
            if runner.engine is None or isinstance(runner.engine, NoEngine):
                runner.host_engine(self.settings)
            if packed is not None:
                runner.sync_engine(unpack(packed), self.version)
                runner.pushes = self.number
        except Exception as error:
            if not runner.pushes and self.weights is not None:  # else it samples from the checkpoint
                runner.engine = NoEngine(brief(error))
            return CallOutcome("gone" if isinstance(error, ObjectLostError) else "failed", brief(error))
        return CallOutcome("ok")


@dataclass
class RunnerEngines:
    """The engines of a run whose env runners each have one."""

    runners: Runners
    settings: EngineSettings
    #: The last weights, their version, and the number of pushes so far; None before the first push.
    last: tuple[Any, int, int] = field(default=(None, 0, 0))

    def call(self) -> HostEngine:
        return HostEngine(self.settings, *self.last)

    def await_start(self) -> None:
        """Build all engines concurrently.

        Raises:
            EngineError: one cannot be built, or not in time.
        """
        self._complain(self._equip(START_S))

    def push_weights(self, packed: Packed, version: int, timeout_s: float) -> None:
        """Give all engines weights.

        Args:
            timeout_s: for loading them; running calls have another `EngineSettings.switch_timeout_s` to end.

        Raises:
            EngineError: an engine did not load them; call `restore` before sampling.
            LearnerLost: they are gone with the learner that held them.
        """
        self.last = (stored(packed), version, self.last[2] + 1)
        self._complain(self._equip(timeout_s + self.settings.switch_timeout_s))

    def restore(self) -> None:
        """Restart runners whose engines have died or hang, and give all others the last weights.

        A restarted runner gets its engine when it is admitted again
        (`rl_agents.orchestrator.fault_tolerance.FaultTolerance.welcome`).

        Raises:
            EngineError: a living engine does not load the weights.
            LearnerLost: see `push_weights`.
        """
        outcomes = self._equip(START_S)
        for runner in [runner for runner, outcome in outcomes.items() if outcome.lost]:
            self.runners.lose(runner, kill=outcomes.pop(runner).text != RUNNER)
        self._complain(outcomes)

    def _equip(self, timeout_s: float) -> dict[int, CallOutcome]:
        """Send the call to all living runners; return the outcomes that are not ``ok``, by runner."""
        call = self.call()
        asked = {runner: self.runners.send(runner, call) for runner in self.runners.ids()}
        found = heard(self.runners, asked, timeout_s)
        outcomes = {
            r: CallOutcome("dead", RUNNER) if isinstance(each, RunnerLost) else each for r, each in found.items()
        }
        late = dict.fromkeys(asked, CallOutcome("late", f"no answer within {timeout_s:g} s"))
        return {runner: outcome for runner, outcome in outcomes.items() if outcome.kind != "ok"} | late

    def _complain(self, problems: Mapping[int, CallOutcome]) -> None:
        texts = [f"engine of env runner {runner}: {outcome.text}" for runner, outcome in sorted(problems.items())]
        if any(outcome.kind == "gone" for outcome in problems.values()):
            raise LearnerLost("; ".join(texts))
        if texts:
            raise EngineError("; ".join(texts))


#: Text of the outcome of an engine whose runner has died.
RUNNER = "its process has died"
