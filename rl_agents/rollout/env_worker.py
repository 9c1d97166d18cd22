"""Where an episode's environment is called: in the runner's loop or in a thread.

The environment or the key ``env_blocking`` declares it (`rl_agents.envs.spec.EnvSpec.blocking`). `EnvGuard` wraps
every call of an episode. It enforces the time limit, and refuses tasks that are known to hang (`TaskWatch`).

*inline*: calls are made one after the other in the runner's main thread. Each episode has its own state of Python's and
numpy's global generators (`Generators`). Otherwise the numbers that one episode draws would depend on the others,
because episodes are interleaved call by call. The runner's working directory is restored after each call. A coroutine
is guarded from one of its awaits to the next.

*thread*: one thread creates the environment, makes all its calls and closes it, because some libraries are bound to a
thread. A call that takes too long is interrupted as far as Python can (`PyThreadState_SetAsyncExc`: a loop, not a
system call) and the thread is abandoned: it closes its environment and ends when the call returns. All threads share
the global generators.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import queue
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_agents.envs.base import TextEnv
from rl_agents.envs.coroutines import Pieces, over, within
from rl_agents.errors import InputError, place_in_thread, report_once
from rl_agents.queues import Deadline, QueueWait, current
from rl_agents.rollout.env_calls import EnvFailure, call_env, failure_of, timed_out
from rl_agents.time_limits import CallTimeout, QueueTimeout, call_with_timeout, debugger_active, interrupt

EnvFactory = Callable[[], TextEnv]
#: Seconds that closing an environment may take.
CLOSE_TIMEOUT_S = 10.0
#: Further interruptions of a call that swallows them, a second apart.
INTERRUPTIONS = 60


# --- the global generators of an episode --------------------------------------------------------------------------


class Generators:
    """Python's and numpy's global generators as one episode's environment left them after its last call.

    Only for the main thread, because other threads have no global state of their own.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._python: Any = None
        # Created at the first call, because seeding takes longer than an environment's step.
        self._numpy: np.random.MT19937 | None = None

    def reset(self) -> None:
        """Begin again with the episode's seed."""
        self._python = None
        if self._numpy is not None:
            self._numpy.state = _seeded(self.seed)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Use the episode's generators as the process's, and restore the process's own afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        outside = random.getstate(), np.random.get_bit_generator()  # type: ignore[attr-defined]
        if self._python is None:
            random.seed(self.seed)
        else:
            random.setstate(self._python)
        self._numpy = self._numpy or np.random.MT19937(self.seed)
        np.random.set_bit_generator(self._numpy)  # type: ignore[attr-defined]
        try:
            with folder_kept():
                yield
        finally:
            self._python = random.getstate()
            random.setstate(outside[0])
            np.random.set_bit_generator(outside[1])  # type: ignore[attr-defined]


@contextlib.contextmanager
def folder_kept() -> Iterator[None]:
    """Restore the working directory, which all environments of a runner share."""
    before = _folder()
    try:
        yield
    finally:
        if before and _folder() != before:
            with contextlib.suppress(OSError):
                os.chdir(before)


def _folder() -> str:
    """Return the working directory; empty if it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


@lru_cache(maxsize=256)
def _seeded(seed: int) -> Any:
    return np.random.MT19937(seed).state


# --- tasks whose environments hang or end their process -----------------------------------------------------------


#: Steps of a task that may hang before its other episodes are given up; a reset that hangs is enough.
MAX_HANGS = 3
#: Tasks that hang, while no environment has answered at all, before all others are given up.
MAX_SILENT_TASKS = 3


class CallNote:
    """The tasks whose environments are being called, in a file that outlives a process that dies in such a call.

    Attributes:
        left: the task in whose environment the predecessor with the same file died. Empty if there is none, or if
            threads called those of several tasks, of which any may be the cause.
        unclear: it died while several were called: the first batches call one at a time, so that another death tells.
    """

    SIZE = 1 << 16

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_bytes().partition(b"\0")[0].decode(errors="replace") if path.exists() else ""
        tasks = {task for task in text.split("\n") if task}  # rollouts of a group share one
        self.unclear = len(tasks) > 1
        self.left = tasks.pop() if len(tasks) == 1 else ""
        path.write_bytes(bytes(self.SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.SIZE)
        self._running: list[str] = []

    @contextlib.contextmanager
    def calling(self, task_id: str) -> Iterator[None]:
        self._running.append(task_id)
        self._write()
        try:
            yield
        finally:
            self._running.remove(task_id)
            self._write()

    def close(self) -> None:
        self._map.close()
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        text = "\n".join(self._running).encode()[: self.SIZE - 1]
        self._map[: len(text) + 1] = text + b"\0"


@dataclass
class TaskWatch:
    """Knows which tasks' environments hang, so that other episodes of these tasks do not wait for them again.

    Attributes:
        answered: some environment has answered in time.
        note: what a successor of this process will read.
    """

    answered: bool = False
    note: CallNote | None = None
    _hangs: Counter[str] = field(default_factory=Counter)
    _causes: dict[str, str] = field(default_factory=dict)
    _batches: int = 0
    _first: int = 0  # unfinished batches of those that began before one ended (`CallNote.unclear`)
    _one_ended: bool = False
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @contextlib.contextmanager
    def batch(self, tasks: Iterable[str]) -> Iterator[None]:
        """Run a batch of these tasks, which are tried again; all others, too, if no other batch is in progress."""
        if not self._batches:
            self.answered = False
            self._turn = asyncio.Lock()  # of this batch's event loop
            self._hangs.clear()
            self._causes.clear()
        for task in tasks:
            self._hangs.pop(task, None)
            self._causes.pop(task, None)
        first = not self._one_ended
        self._batches, self._first = self._batches + 1, self._first + first
        try:
            yield
        finally:
            self._batches, self._first, self._one_ended = self._batches - 1, self._first - first, True
            if self.note is not None and not self._first:
                self.note.unclear = False

    def noted(self, task_id: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.note is None else self.note.calling(task_id)

    def turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Return what a call in a thread waits for: nothing, or that it is alone (`CallNote.unclear`)."""
        return self._turn if self.note is not None and self.note.unclear else contextlib.nullcontext()

    def check(self, task_id: str) -> None:
        """Refuse a call that would use up its whole time limit again.

        Raises:
            EnvFailure: with the cause of the first one.
        """
        if self._hangs[task_id] >= MAX_HANGS:
            raise EnvFailure(self._causes[task_id])
        if not self.answered and len(self._causes) >= MAX_SILENT_TASKS:
            raise EnvFailure(next(iter(self._causes.values())))

    def hung(self, task_id: str, cause: str, *, reset: bool) -> None:
        self._causes.setdefault(task_id, cause)
        self._hangs[task_id] += MAX_HANGS if reset else 1


# --- the guard around an episode's calls --------------------------------------------------------------------------


class EnvGuard:
    """Makes the calls of one episode's environment; see the module.

    Args:
        host: the thread that calls the environment; None: it is called in this thread.

    Attributes:
        generators: the episode's; without effect in a thread.
    """

    def __init__(
        self, task_id: str, seed: int, timeout_s: float, watch: TaskWatch | None = None, host: ThreadHost | None = None
    ) -> None:
        self.task_id, self.timeout_s, self.watch = task_id, timeout_s, watch or TaskWatch()
        self.host = host
        self.generators = Generators(seed)

    async def call(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``call(*args, **kwargs)``, awaited if it is a coroutine.

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
            async with self.watch.turn():
                self.watch.check(self.task_id)  # what is known may have changed while it waited
                with self.watch.noted(self.task_id):
                    return await self.host.call(0 if debugger_active() else self.timeout_s, call, *args, **kwargs)
        answer = self._here(call_env, call, *args, **kwargs)
        if type(answer) is not tuple and isinstance(answer, Awaitable):
            return await self._awaited(call, answer)
        return answer

    def _here(self, limited: Callable[..., Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call, or a piece of one, in this thread through ``limited``, which enforces its time limit."""
        with self.watch.noted(self.task_id), self.generators.applied():
            return limited(self.timeout_s, call, *args, **kwargs)

    async def _awaited(self, call: Callable[..., Any], awaitable: Awaitable[Any]) -> Any:
        """Await what a coroutine function returned; between its awaits it is guarded like a plain call."""
        pieces = Pieces(awaitable, lambda send, value: self._here(call_with_timeout, send, value))

        async def answered() -> Any:
            try:
                return await pieces
            except InputError:
                raise
            except (CallTimeout, Exception, SystemExit) as error:
                raise failure_of(call, error) from error

        deadline = Deadline(0 if debugger_active() else self.timeout_s)
        try:
            return await within(deadline, pieces, answered())
        except TimeoutError:
            failure = timed_out(call, deadline)
            raise failure from failure.__cause__
        except RuntimeError as error:
            raise failure_of(call, error) from error


# --- threads ------------------------------------------------------------------------------------------------------


class _Job:
    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.loop, self.queue_wait = call, asyncio.get_running_loop(), current() or QueueWait()
        self.answer: asyncio.Future[Any] = self.loop.create_future()

    def deliver(self, result: Any, error: BaseException | None) -> None:
        """Deliver the answer if the caller still waits; called in the thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._set, result, error)

    def _set(self, result: Any, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(result)
        else:
            self.answer.set_exception(error)


class ThreadHost:
    """One environment in one thread.

    Attributes:
        over: the thread ends after its present call.
        left: the thread was abandoned in a call that took too long, or whose caller stopped waiting.
    """

    def __init__(self) -> None:
        self._env: Any = None
        self.over, self.left = False, False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._runner: asyncio.Runner | None = None
        self._calling = False
        self._thread = threading.Thread(target=self._work, name="environment", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    async def make(self, make_env: EnvFactory, timeout_s: float) -> TextEnv:
        """Create the environment in its thread; raises like `call`. A late one is closed there."""

        def start() -> None:  # messages of a failure name it
            self._env = make_env()

        await self.call(timeout_s, start)
        made: TextEnv = self._env
        return made

    async def call(self, timeout_s: float, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return ``call(*args, **kwargs)``; raises like `rl_agents.rollout.env_calls.call_env`.

        If the caller stops waiting for any reason, the environment is abandoned.
        """
        if self.over:  # there would be no answer
            name = getattr(call, "__name__", "call")
            raise EnvFailure(f"env_error: {name}: the environment was left in the middle of an earlier call")
        job = _Job(lambda: call_env(0, self._finished, call, *args, **kwargs))
        deadline = Deadline(timeout_s)
        self._jobs.put(job)
        try:
            await over(job.answer, deadline)
        finally:
            late = job.answer.cancel()
            if late:
                place = place_in_thread(self._thread.ident)
                self.abandon()
        if late:
            raise timed_out(call, deadline, place)
        return job.answer.result()

    async def close(self) -> None:
        """Close the environment and end the thread; ignore what the environment raises."""
        if not self.over:
            with contextlib.suppress(Exception):
                await self.call(CLOSE_TIMEOUT_S, self._close)
        self.over = True
        self._jobs.put(None)

    def abandon(self) -> None:
        """Abandon the thread in its call."""
        self.over = self.left = True
        self._jobs.put(None)
        threading.Thread(target=self._keep_interrupting, name="interrupts an environment", daemon=True).start()

    def _keep_interrupting(self) -> None:
        """Interrupt until the call ends: code may swallow an interruption and use half of the process's time."""
        for pause_s in (0.05, 0.2, *[1.0] * INTERRUPTIONS):
            self._interrupt()
            self._thread.join(pause_s)
            if not self.alive:
                return

    def _interrupt(self) -> None:
        if self._calling and self._thread.ident is not None:
            interrupt(self._thread.ident)
            if self._runner is not None:  # while its loop waits for an event, Python runs no line
                with contextlib.suppress(RuntimeError):  # it is closed
                    self._runner.get_loop().call_soon_threadsafe(lambda: None)

    def _finished(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call, and await a coroutine in the thread's own event loop."""
        answer = call(*args, **kwargs)
        if isinstance(answer, Awaitable):
            self._runner = self._runner or asyncio.Runner()
            return self._runner.run(_part_of(current(), answer))
        return answer

    def _work(self) -> None:
        try:
            while (job := self._jobs.get()) is not None:
                self._answer(job)
                del job
        except CallTimeout:  # an interruption that arrived too late
            pass
        finally:
            with contextlib.suppress(BaseException):
                self._close()
                if self._runner is not None:
                    self._runner.close()

    def _answer(self, job: _Job) -> None:
        before = _positions()
        try:
            self._calling = True
            with job.queue_wait.used():  # in the thread's own context, which keeps what the environment sets there
                result, error = job.call(), None
        except BaseException as raised:
            result, error = None, raised
        finally:
            self._calling = False
        if _positions() != before:
            report_once(
                "an environment draws from the global generators of Python or numpy, which all threads share, so runs "
                'cannot be repeated exactly: draw from self.np_random, or declare blocking = "inline"'
            )
        job.deliver(result, error)

    def _close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            self._finished(env.close)


def _positions() -> tuple[Any, Any]:
    """Return what a draw from the global generators of Python and numpy changes."""
    return random.getstate()[1][-1], np.random.get_bit_generator().state["state"].get("pos")  # type: ignore[attr-defined]


async def _part_of(queue_wait: QueueWait | None, answer: Awaitable[Any]) -> Any:
    """Await a part of a call whose `QueueWait` this context lacks."""
    with (queue_wait or QueueWait()).used():
        return await answer
