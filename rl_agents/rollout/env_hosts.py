"""Where an environment lives that is not called in the runner's loop: a thread of its own.

The thread makes the environment, makes all its calls and closes it, as libraries want that belong to a thread. A call
that takes too long is interrupted as far as Python can (`PyThreadState_SetAsyncExc`: a loop, not a system call), and
the thread is left to itself: it closes its environment and ends when the call returns. An environment in a process is
called by such a thread, too (`rl_agents.rollout.env_process`).

Global random generators and the working directory are the whole process's. What draws from them, or changes the
directory, belongs into a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import queue
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import numpy as np

from rl_agents.envs.base import TextEnv
from rl_agents.envs.coroutines import over
from rl_agents.queues import Deadline, QueueWait, current
from rl_agents.rollout.env_calls import EnvFailure, call_env, timed_out
from rl_agents.rollout.time_limits import CallTimeout


class Swaps:
    """Counts how often an inline episode's generators take the process's place, and when they leave it again."""

    count = 0


EnvFactory = Callable[[], TextEnv]
#: Seconds that closing an environment may take.
CLOSE_TIMEOUT_S = 10.0
#: Further interruptions of a call that swallows them, a second apart.
INTERRUPTIONS = 60


class EpisodeState(Protocol):
    """What an episode has of the process in which its environment is called."""

    seed: int
    folder: str

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """While a call is made here."""
        ...

    def reset(self) -> None:
        """Begin again with the episode's seed."""
        ...

    def drawn(self) -> Any:
        """The generators' states as data; None where nobody has drawn."""
        ...

    def touched(self) -> str:
        """What the environment has changed of the process, in words; empty for nothing."""
        ...

    def resume(self, drawn: Any) -> None:
        """Go on from what `drawn` returned."""
        ...


class Host(Protocol):
    """Where an environment is called.

    Attributes:
        may_die: it may die of a call without taking the runner with it.
    """

    may_die: bool

    def begin(self, seed: int) -> EpisodeState:
        """An episode begins."""
        ...

    async def call(self, timeout_s: float, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``call(*args, **kwargs)``; raises as `rl_agents.rollout.env_calls.call_env` does."""
        ...


class NoState:
    """A thread has no process of its own: its episodes share the runner's."""

    def __init__(self, seed: int) -> None:
        self.seed, self.folder = seed, ""

    def applied(self) -> contextlib.AbstractContextManager[None]:
        """Nothing to apply."""
        return contextlib.nullcontext()

    def reset(self) -> None:
        """Nothing to reset."""

    def drawn(self) -> Any:
        """Nobody knows."""
        return None

    def touched(self) -> str:
        """Nobody knows."""
        return ""

    def resume(self, drawn: Any) -> None:
        """Nothing to resume."""


class Job:
    """A call on its way to a thread and back."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.loop, self.standing = call, asyncio.get_running_loop(), current() or QueueWait()
        self.answer: asyncio.Future[Any] = self.loop.create_future()

    def told(self, result: Any, error: BaseException | None) -> None:
        """Bring the answer back, if somebody still waits; called in the thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._tell, result, error)

    def _tell(self, result: Any, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(error)


class ThreadHost:
    """One environment in one thread.

    Attributes:
        env: the environment, once it is made.
        over: the thread ends after the call that it is in.
        left: in the middle of a call, which took too long or which nobody waits for any more.
    """

    may_die = False

    def __init__(self, watches: bool = False) -> None:
        self.env: Any = None
        self.over, self.left, self._touched, self._watches = False, False, "", watches
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._runner: asyncio.Runner | None = None
        self._calling = False
        self._thread = threading.Thread(target=self._work, name="environment", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    @property
    def touched(self) -> str:
        """What changed of the process while a call was made, in words; seen where ``watches`` says so.

        It may have been any other thread of the process: a suspicion, see `EnvPool`.
        """
        return self._touched

    def forget(self) -> None:
        """Look out for changes again."""
        self._touched = ""

    def begin(self, seed: int) -> EpisodeState:
        return NoState(seed)

    async def make(self, make_env: EnvFactory, timeout_s: float = 0.0) -> TextEnv:
        """Make the environment in its thread; raises as `call` does. Who is late closes it there."""
        await self.call(timeout_s, self.start, make_env)
        made: TextEnv = self.env
        return made

    async def call(self, timeout_s: float, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """See `Host`. Who stops waiting, for whatever reason, leaves the environment behind."""
        if self.over:  # nobody would ever answer
            name = getattr(call, "__name__", "call")
            raise EnvFailure(f"env_error: {name}: the environment was left in the middle of an earlier call")
        job = Job(lambda: call_env(0, self._finished, call, *args, **kwargs))
        deadline = Deadline(timeout_s)
        self._jobs.put(job)
        try:
            await over(job.answer, deadline)
        finally:
            late = job.answer.cancel()
            if late:
                self.abandon()
        if late:
            raise timed_out(call, deadline)
        return job.answer.result()

    async def close(self) -> None:
        """Close the environment and end the thread; what the environment raises no longer matters."""
        if not self.over:
            with contextlib.suppress(Exception):
                await self.call(CLOSE_TIMEOUT_S, self._close)
        self.over = True
        self._jobs.put(None)

    def abandon(self) -> None:
        """Leave the thread to itself, which is in a call."""
        self.over = self.left = True
        self._jobs.put(None)
        threading.Thread(target=self._keep_interrupting, name="interrupts an environment", daemon=True).start()

    def _keep_interrupting(self) -> None:
        """Until the call is over: careless code swallows an interruption, and would take half of the process's time."""
        for pause_s in (0.05, 0.2, *[1.0] * INTERRUPTIONS):
            self.interrupt()
            self._thread.join(pause_s)
            if not self.alive:
                return

    def interrupt(self) -> None:
        """Raise `CallTimeout` in the call that the thread is in."""
        if self._calling and self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(CallTimeout)
            )
            if self._runner is not None:  # its loop may wait for an event, and Python runs no line meanwhile
                with contextlib.suppress(RuntimeError):  # it is closed
                    self._runner.get_loop().call_soon_threadsafe(lambda: None)

    def start(self, make_env: EnvFactory) -> None:
        """Make the environment, in the thread."""
        self.env = make_env()

    def _finished(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call; a coroutine function's answer is awaited in a loop of the thread's own."""
        answer = call(*args, **kwargs)
        if isinstance(answer, Awaitable):
            self._runner = self._runner or asyncio.Runner()
            return self._runner.run(part_of(current(), answer))
        return answer

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._answer(job)
                del job
        except CallTimeout:  # an interruption that came too late
            pass
        finally:
            with contextlib.suppress(BaseException):
                self._end()

    def _answer(self, job: Job) -> None:
        swaps = Swaps.count  # read before the generators here, and after them below
        before = _process() if self._watches and not self.may_die else None
        try:
            self._calling = True
            with job.standing.used():  # in the thread's own context, which keeps what the environment sets there
                result, error = job.call(), None
        except BaseException as raised:
            result, error = None, raised
        finally:
            self._calling = False
        if before is not None and not self._touched:
            now = _process()
            if now != before and swaps % 2 == 0 and swaps == Swaps.count:  # else an inline episode's were seen
                folder = now[-1] != before[-1]
                self._touched = "changes the working directory" if folder else "draws from global generators"
        job.told(result, error)

    def _close(self) -> None:
        env, self.env = self.env, None
        if env is not None:
            self._finished(env.close)

    def _end(self) -> None:
        """Close what is left, as the thread ends."""
        self._close()
        if self._runner is not None:
            self._runner.close()


async def part_of(standing: QueueWait | None, answer: Awaitable[Any]) -> Any:
    """Await a part of a call in a context that does not know of it."""
    with (standing or QueueWait()).used():
        return await answer


def _process() -> tuple[Any, ...]:
    """Where the global generators stand, and the working directory."""
    numpy_state = np.random.get_bit_generator().state["state"]  # type: ignore[attr-defined]
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = ""
    return random.getstate()[1][-1], numpy_state.get("pos"), folder  # of another kind of generator: unknown
