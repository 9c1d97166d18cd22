"""What stands between the agent loop and an environment: a guard around each call of an episode's own.

The guard keeps time, remembers tasks that hang (`task_watch`), and gives every episode its own copy of what a process
has only once (`process_state`). Episodes are interleaved call by call; without this, what one of them draws would
depend on the others. A coroutine is guarded from one of its waits to the next.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from rl_agents.envs.coroutines import Pieces, within
from rl_agents.errors import InputError
from rl_agents.queues import Deadline, QueueWait
from rl_agents.rollout.env_calls import EnvFailure, call_env, failure_of, timed_out
from rl_agents.rollout.env_hosts import EpisodeState, Host
from rl_agents.rollout.latency_probe import Gauge, Times
from rl_agents.rollout.process_state import ProcessState
from rl_agents.rollout.task_watch import TaskWatch
from rl_agents.rollout.time_limits import CallTimeout, QueueTimeout, call_with_timeout, debugger_active


class EnvGuard:
    """Makes the calls of one episode's environment; see the module.

    Args:
        host: where the environment lives, unless it is called here.
        gauge: is told how long calls take that are made here.

    Attributes:
        process: what the episode has of the process in which its environment is called.
    """

    def __init__(
        self, task_id: str, seed: int, timeout_s: float, watch: TaskWatch | None = None, host: Host | None = None,
        gauge: Gauge | None = None,
    ) -> None:  # fmt: skip
        self.task_id, self.timeout_s, self.watch = task_id, timeout_s, watch or TaskWatch()
        self.host, self.gauge = host, gauge
        self.process: EpisodeState = ProcessState(seed) if host is None else host.begin(seed)

    @property
    def apart(self) -> bool:
        """Whether the environment has a process of its own."""
        return self.host is not None and self.host.may_die

    async def call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``call(*args, **kwargs)``, or what it comes to where it is a coroutine function.

        Raises:
            EnvFailure, InputError: see `call_env`; or the task is known to hang.
        """
        self.watch.check(self.task_id)
        try:
            with QueueWait().used():
                answer = await self._answer(call, *args, **kwargs)
        except EnvFailure as failure:
            cause = failure.__cause__
            if isinstance(cause, CallTimeout) and not isinstance(cause, QueueTimeout):
                self.watch.hung(self.task_id, str(failure), reset=getattr(call, "__name__", "") == "reset")
            raise
        self.watch.answered = True
        return answer

    async def _answer(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.host is not None:
            return await self._elsewhere(self.host, call, *args, **kwargs)
        answer = self._here(call, *args, **kwargs)
        if type(answer) is not tuple and isinstance(answer, Awaitable):
            answer = await self._awaited(call, answer)
        return answer

    def _here(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        note, gauge = self.watch.note, self.gauge
        if note is not None:
            note.enter(self.task_id)
        started = Times.now() if gauge is not None else None
        try:
            with self.process.applied():
                return call_env(self.timeout_s, call, *args, **kwargs)
        finally:
            if gauge is not None and started is not None:
                gauge.end(started, self.process)
            if note is not None:
                note.leave(self.task_id)

    async def _awaited(self, call: Callable[..., Any], awaitable: Awaitable[Any]) -> Any:
        """Await what a coroutine function returned; between its waits it is guarded like a plain call."""
        self.watch.waited = True
        if self.gauge is not None:
            self.gauge.waits()

        pieces = Pieces(awaitable, self._piece)

        async def told() -> Any:
            try:
                return await pieces
            except (InputError, EnvFailure):
                raise
            except (CallTimeout, Exception, SystemExit) as error:
                raise failure_of(call, error) from error

        deadline = Deadline(0 if debugger_active() else self.timeout_s)
        try:
            return await within(deadline, pieces, told())
        except TimeoutError:
            failure = timed_out(call, deadline)
            raise failure from failure.__cause__
        except RuntimeError as error:
            raise failure_of(call, error) from error

    def _piece(self, go_on: Callable[[Any], Any], value: Any) -> Any:
        note = self.watch.note
        if note is not None:
            note.enter(self.task_id)
        try:
            with self.process.applied():
                return call_with_timeout(self.timeout_s, go_on, value)
        finally:
            if note is not None:
                note.leave(self.task_id)

    async def _elsewhere(self, host: Host, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        timeout_s, note = 0 if debugger_active() else self.timeout_s, self.watch.note
        if note is None or host.may_die:
            return await host.call(timeout_s, call, *args, **kwargs)
        async with note.alone(self.task_id):
            note.enter(self.task_id)
            try:
                return await host.call(timeout_s, call, *args, **kwargs)
            finally:
                note.leave(self.task_id)
