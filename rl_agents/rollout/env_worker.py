"""Where an episode's environment is called: in the runner's loop, in a thread or in its own process.

The environment or the key ``env_blocking`` declares it (`rl_agents.envs.spec.EnvSpec.blocking`). Nothing is measured,
so that a run behaves the same each time. `EnvGuard` wraps every call of an episode. It enforces the time limit, and
refuses tasks that are known to hang (`TaskWatch`).

*inline*: calls are made one after the other in the runner's main thread. Each episode has its own state of Python's and
numpy's global generators (`Generators`). Otherwise the numbers that one episode draws would depend on the others,
because episodes are interleaved call by call. The runner's working directory is restored after each call. A coroutine
is guarded from one of its awaits to the next.

*thread*: one thread creates the environment, makes all its calls and closes it, because some libraries are bound to a
thread. A call that takes too long is interrupted as far as Python can (`PyThreadState_SetAsyncExc`: a loop, not a
system call) and the thread is abandoned: it closes its environment and ends when the call returns. All threads share
the global generators, so an environment that draws from them needs a process.

*process*: `rl_agents.rollout.env_child`, called by such a thread. It is started below
`rl_agents.gateway.process_supervisor_child`, which kills the whole process tree when it ends, when it is released, or
when the runner dies for any reason. The two processes share a pipe. Requests are pickled, because the process trusts
its runner. Answers are plain data (`rl_agents.rollout.serialization`), and the runner executes nothing of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import os
import queue
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np

from rl_agents.envs.base import TextEnv
from rl_agents.envs.coroutines import Pieces, over, within
from rl_agents.errors import InputError
from rl_agents.gateway.process_supervisor import CHILD, kill_tree
from rl_agents.queues import Deadline, QueueWait, current
from rl_agents.rollout.env_calls import (
    CallTimeout,
    EnvFailure,
    QueueTimeout,
    call_env,
    call_with_timeout,
    debugger_active,
    failure_of,
    timed_out,
)
from rl_agents.rollout.serialization import ATTRIBUTES, MAX_BYTES, Answer, Call, EnvRecipe, Order

EnvFactory = Callable[[], TextEnv]
#: Seconds that closing an environment may take.
CLOSE_TIMEOUT_S = 10.0
#: Further interruptions of a call that swallows them, a second apart.
INTERRUPTIONS = 60
#: Seconds between the end of a process's pipe and that of the process.
END_S = 5.0


# --- the global generators of an episode --------------------------------------------------------------------------


class EpisodeState:
    """An episode's own part of the process that calls its environment; nothing in a thread, which shares all."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def applied(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def reset(self) -> None:
        """Begin again with the episode's seed."""

    def drawn(self) -> Any:
        """Return the generators' states for `resume`; None if nothing was drawn, or it is not known."""
        return None

    def resume(self, drawn: Any) -> None:
        """Continue from what `drawn` returned."""


class Generators(EpisodeState):
    """Python's and numpy's global generators as one episode's environment left them after its last call.

    Only for the main thread, because other threads have no global state of their own.

    Args:
        keep_folder: restore the working directory after each call; not needed in the environment's own process.
    """

    def __init__(self, seed: int, keep_folder: bool = True) -> None:
        super().__init__(seed)
        self._keep_folder = keep_folder
        self._python: Any = None
        # Created at the first call, because seeding takes longer than an environment's step.
        self._numpy: np.random.MT19937 | None = None

    def reset(self) -> None:
        self._python = None
        if self._numpy is not None:
            self._numpy.state = _seeded(self.seed)

    def drawn(self) -> Any:
        if self._numpy is None:
            return None
        state, start = self._numpy.state, _seeded(self.seed)["state"]
        same = self._python is None or self._python == random.Random(self.seed).getstate()
        if same and state["state"]["pos"] == start["pos"] and np.array_equal(state["state"]["key"], start["key"]):
            return None
        return self._python, state

    def resume(self, drawn: Any) -> None:
        self.reset()
        if drawn is not None:
            self._python, self._generator().state = drawn

    def _generator(self) -> np.random.MT19937:
        if self._numpy is None:
            self._numpy = np.random.MT19937(self.seed)
        return self._numpy

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
        np.random.set_bit_generator(self._generator())  # type: ignore[attr-defined]
        try:
            with folder_kept() if self._keep_folder else contextlib.nullcontext():
                yield
        finally:
            self._python = random.getstate()
            random.setstate(outside[0])
            np.random.set_bit_generator(outside[1])  # type: ignore[attr-defined]


@contextlib.contextmanager
def folder_kept() -> Iterator[None]:
    """Restore the working directory; an environment that needs a directory of its own runs in a process."""
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
    """

    SIZE = 1 << 16

    def __init__(self, path: Path) -> None:
        self._path = path
        text = path.read_bytes().partition(b"\0")[0].decode(errors="replace") if path.exists() else ""
        tasks = {task for task in text.split("\n") if task}  # rollouts of a group share one
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
        waited: some environment is written as coroutines, so that calls run concurrently.
        note: what a successor of this process will read.
    """

    answered: bool = False
    waited: bool = False
    note: CallNote | None = None
    _hangs: Counter[str] = field(default_factory=Counter)
    _causes: dict[str, str] = field(default_factory=dict)
    _batches: int = 0

    @contextlib.contextmanager
    def batch(self, tasks: Iterable[str]) -> Iterator[None]:
        """Run a batch of these tasks, which are tried again; all others, too, if no other batch is in progress."""
        if not self._batches:
            self.answered = False
            self._hangs.clear()
            self._causes.clear()
        for task in tasks:
            self._hangs.pop(task, None)
            self._causes.pop(task, None)
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1

    def noted(self, task_id: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.note is None else self.note.calling(task_id)

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
        took: receives the seconds of every call that is made in this thread.

    Attributes:
        process: the episode's part of the process in which its environment is called.
    """

    def __init__(
        self, task_id: str, seed: int, timeout_s: float, watch: TaskWatch | None = None, host: ThreadHost | None = None,
        took: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        self.task_id, self.timeout_s, self.watch = task_id, timeout_s, watch or TaskWatch()
        self.host, self._took = host, took
        self.process: EpisodeState = Generators(seed) if host is None else host.begin(seed)

    @property
    def apart(self) -> bool:
        return self.host is not None and self.host.may_die

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
            return await self._elsewhere(self.host, call, *args, **kwargs)
        started = time.perf_counter()
        answer = self._here(call_env, call, *args, **kwargs)
        if type(answer) is not tuple and isinstance(answer, Awaitable):
            return await self._awaited(call, answer)
        if self._took is not None:
            self._took(time.perf_counter() - started)
        return answer

    def _here(self, limited: Callable[..., Any], call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a call, or a piece of one, in this thread through ``limited``, which enforces its time limit."""
        with self.watch.noted(self.task_id), self.process.applied():
            return limited(self.timeout_s, call, *args, **kwargs)

    async def _awaited(self, call: Callable[..., Any], awaitable: Awaitable[Any]) -> Any:
        """Await what a coroutine function returned; between its awaits it is guarded like a plain call."""
        self.watch.waited = True
        pieces = Pieces(awaitable, lambda send, value: self._here(call_with_timeout, send, value))

        async def answered() -> Any:
            try:
                return await pieces
            except (InputError, EnvFailure):
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

    async def _elsewhere(self, host: ThreadHost, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        timeout_s = 0 if debugger_active() else self.timeout_s
        if host.may_die:
            return await host.call(timeout_s, call, *args, **kwargs)
        with self.watch.noted(self.task_id):
            return await host.call(timeout_s, call, *args, **kwargs)


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
        env: the environment, once it is created.
        over: the thread ends after its present call.
        left: the thread was abandoned in a call that took too long, or whose caller stopped waiting.
        may_die: a call may kill it without killing the runner.
    """

    may_die = False

    def __init__(self) -> None:
        self.env: Any = None
        self.over, self.left = False, False
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._runner: asyncio.Runner | None = None
        self._calling = False
        self._thread = threading.Thread(target=self._work, name="environment", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def begin(self, seed: int) -> EpisodeState:
        return EpisodeState(seed)

    async def make(self, make_env: EnvFactory, timeout_s: float = 0.0) -> TextEnv:
        """Create the environment in its thread; raises like `call`. A late one is closed there."""
        await self.call(timeout_s, self.start, make_env)
        made: TextEnv = self.env
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
                self.abandon()
        if late:
            raise timed_out(call, deadline)
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
            self.interrupt()
            self._thread.join(pause_s)
            if not self.alive:
                return

    def interrupt(self) -> None:
        if self._calling and self._thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident), ctypes.py_object(CallTimeout)
            )
            if self._runner is not None:  # while its loop waits for an event, Python runs no line
                with contextlib.suppress(RuntimeError):  # it is closed
                    self._runner.get_loop().call_soon_threadsafe(lambda: None)

    def start(self, make_env: EnvFactory) -> None:
        self.env = make_env()

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
        try:
            self._calling = True
            with job.queue_wait.used():  # in the thread's own context, which keeps what the environment sets there
                result, error = job.call(), None
        except BaseException as raised:
            result, error = None, raised
        finally:
            self._calling = False
        job.deliver(result, error)

    def _close(self) -> None:
        env, self.env = self.env, None
        if env is not None:
            self._finished(env.close)


async def _part_of(queue_wait: QueueWait | None, answer: Awaitable[Any]) -> Any:
    """Await a part of a call whose `QueueWait` this context lacks."""
    with (queue_wait or QueueWait()).used():
        return await answer


# --- processes ----------------------------------------------------------------------------------------------------


class ProcessEnv:
    """An environment in a process; all calls block.

    Attributes:
        order: for the next call.
        drawn: the generators' states at the last snapshot.
    """

    def __init__(self, recipe: EnvRecipe) -> None:
        self._recipe = recipe
        self._has: frozenset[str] = frozenset()
        self.order: Order | None = None
        self.drawn: Any = None
        self._pipe, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-m", "rl_agents.rollout.env_child", str(theirs.fileno())]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", CHILD, "0", *command], stdin=subprocess.PIPE, pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, recipe.path))}, start_new_session=True,
            )  # fmt: skip

    def open(self) -> None:
        """Create the environment; raises the `EnvFailure` or `InputError` that its process reports."""
        self._has = frozenset(self._asked(self._recipe))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self._ask("reset", seed=seed, options=options)

    def step(self, action: str) -> Any:
        return self._ask("step", action)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._has:
            raise AttributeError(name)
        return self._ask(name) if name in ATTRIBUTES else lambda *args: self._ask(name, *args)

    def close(self) -> None:
        try:
            self._ask("close")
        finally:
            self.kill()
            self._ended()

    def kill(self) -> None:
        """Kill the process and all its descendants; return at once."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(b"!")
            self._process.stdin.close()

    def _ask(self, name: str, *args: Any, **kwargs: Any) -> Any:
        order, self.order = self.order, None
        return self._asked(Call(name, args, kwargs, order))

    def _asked(self, message: Call | EnvRecipe) -> Any:
        name = message.name if isinstance(message, Call) else "start"
        try:
            self._pipe.send(message)
            answer = Answer.from_bytes(self._pipe.recv_bytes(MAX_BYTES))
        except ValueError as error:
            raise EnvFailure(f"env_garbage: {name}: its process sent no answer: {str(error)[:80]!a}") from None
        except (EOFError, OSError):
            raise EnvFailure(f"env_died: {name}: the environment's process {self._ended()}") from None
        if answer.failure:
            raise (InputError if answer.user_error else EnvFailure)(answer.failure)
        self.drawn = answer.drawn
        return answer.result

    def _ended(self) -> str:
        self._pipe.close()
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            kill_tree(self._process.pid)
            code = self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return f"was ended by signal {code - 128}" if code > 128 else f"ended with exit code {code}"


class _ChildState(EpisodeState):
    """The generators of an episode whose environment is in a process, which holds them."""

    def __init__(self, env: ProcessEnv, seed: int) -> None:
        super().__init__(seed)
        self._env = env
        self.reset()

    def reset(self) -> None:
        self._env.order = Order(self.seed)

    def drawn(self) -> Any:
        """Return the states after the last call, which was `snapshot`."""
        return self._env.drawn

    def resume(self, drawn: Any) -> None:
        self._env.order = Order(self.seed, drawn)


class ProcessHost(ThreadHost):
    """One environment in one process, with the thread that calls it."""

    may_die = True

    def __init__(self, recipe: EnvRecipe) -> None:
        super().__init__()
        self._recipe = recipe
        self._process: ProcessEnv | None = None

    def begin(self, seed: int) -> EpisodeState:
        return _ChildState(self.env, seed)

    def abandon(self) -> None:
        """Kill the process, which ends the thread."""
        super().abandon()
        if self._process is not None:  # not `env`, which is None while it is closed
            self._process.kill()

    def interrupt(self) -> None:
        """Do nothing: the thread waits for the process."""

    def start(self, make_env: EnvFactory) -> None:
        self.env = self._process = ProcessEnv(self._recipe)
        if self.over:  # the caller stopped waiting
            self._process.kill()
        self._process.open()
