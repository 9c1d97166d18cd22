"""What stands between the agent loop and an environment: a guard around each call of an episode's own.

The guard keeps time, remembers tasks that hang, and gives every episode its own copy of what a process has only once:
Python's and numpy's global random generators and the working directory. Episodes are interleaved call by call; without
this, what one of them draws would depend on the others. A coroutine is guarded from one of its waits to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_agents.envs.coroutines import Pieces, within
from rl_agents.errors import InputError
from rl_agents.queues import Deadline, Standing
from rl_agents.rollout.env_calls import EnvFailure, call_env, failure_of, timed_out
from rl_agents.rollout.env_gauge import Gauge, Times
from rl_agents.rollout.env_hosts import EpisodeState, Host, Swaps
from rl_agents.rollout.time_limits import CallTimeout, QueueTimeout, call_with_timeout, debugger_active

#: Steps of a task that may hang before its other episodes are given up; a reset that hangs is enough.
MAX_HANGS = 3
#: Tasks that hang, while no environment has answered at all, before all others are given up.
MAX_SILENT_TASKS = 3


class ProcessState:
    """Global generators and working directory as one episode's environment left them after its last call.

    Only in the main thread: a thread cannot have global state of its own.

    Attributes:
        folder: the environment's working directory; empty for the process's own.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.folder = ""
        self._python: Any = None
        # Made at the first call: seeding takes longer than an environment's step.
        self._numpy: np.random.MT19937 | None = None

    def reset(self) -> None:
        """Put the generators back to the episode's seed."""
        self._python = None
        if self._numpy is not None:
            self._numpy.state = _seeded(self.seed)

    def drawn(self) -> Any:
        """The generators' states as plain data that `resume` takes; None where nobody has drawn or seeded."""
        if self._numpy is None:
            return None
        state, start = self._numpy.state, _seeded(self.seed)["state"]
        same = self._python is None or self._python == random.Random(self.seed).getstate()
        if same and state["state"]["pos"] == start["pos"] and np.array_equal(state["state"]["key"], start["key"]):
            return None
        return self._python, state

    def touched(self) -> str:
        """Say what the environment has changed of the process; empty for nothing."""
        if self.drawn() is not None:
            return "draws from Python's or numpy's global generators"
        return "changes the working directory" if self.folder not in ("", working_folder()) else ""

    def resume(self, drawn: Any) -> None:
        """Go on from what `drawn` returned."""
        self.reset()
        if drawn is not None:
            self._python, self._generator().state = drawn

    def _generator(self) -> np.random.MT19937:
        if self._numpy is None:
            self._numpy = np.random.MT19937(self.seed)
        return self._numpy

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Let the episode's state be the process's, and put the process's own back."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        Swaps.count += 1  # odd: threads that look at the generators see an episode's
        outside = random.getstate(), np.random.get_bit_generator(), working_folder()  # type: ignore[attr-defined]
        if self._python is None:
            random.seed(self.seed)
        else:
            random.setstate(self._python)
        np.random.set_bit_generator(self._generator())  # type: ignore[attr-defined]
        enter_folder(self.folder, outside[2])
        try:
            yield
        finally:
            self._python, self.folder = random.getstate(), working_folder()
            random.setstate(outside[0])
            np.random.set_bit_generator(outside[1])  # type: ignore[attr-defined]
            enter_folder(outside[2], self.folder)
            Swaps.count += 1


@lru_cache(maxsize=256)
def _seeded(seed: int) -> Any:
    """State of numpy's generator after seeding; not to be changed."""
    return np.random.MT19937(seed).state


def working_folder() -> str:
    """Return the process's working directory; empty where it was deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def enter_folder(folder: str, now: str) -> None:
    """Change to a working directory, if it is not ``now``'s and still there."""
    if folder and folder != now:
        with contextlib.suppress(OSError):
            os.chdir(folder)


class CallNote:
    """The tasks whose environments are being called, in a file that outlives a process which dies meanwhile.

    Calls that threads make run side by side: then several tasks are suspected. They are remembered, too, and called
    one at a time from then on, so that the next death, if there is one, has but one of them to blame.

    Attributes:
        left: the task that the predecessor, which had the same file, did not come back from; empty when there is none,
            or when it is not known which.
        suspects: those that it may have been.
    """

    SIZE = 1 << 16

    def __init__(self, path: Path) -> None:
        self._path, self._suspected = path, path.with_name(f"{path.name}-suspects")
        running, known = set(_names(path)), set(_names(self._suspected))
        self.suspects = (running & known) or running or known
        self.left = self.suspects.pop() if len(self.suspects) == 1 else ""
        self._suspected.write_bytes("\n".join(sorted(self.suspects)).encode())
        path.write_bytes(bytes(self.SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.SIZE)
        self._running: list[str] = []
        self._one = asyncio.Lock()

    def enter(self, task_id: str) -> None:
        """A call begins."""
        self._running.append(task_id)
        self._write()

    def leave(self, task_id: str) -> None:
        """It is over."""
        self._running.remove(task_id)
        self._write()

    def alone(self, task_id: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Wait until no other task is called that is suspected as this one is."""
        return self._one if task_id in self.suspects else contextlib.nullcontext()

    def close(self) -> None:
        """Delete the files."""
        self._map.close()
        self._path.unlink(missing_ok=True)
        self._suspected.unlink(missing_ok=True)

    def _write(self) -> None:
        text = "\n".join(self._running).encode()[: self.SIZE - 1]
        self._map[: len(text) + 1] = text + b"\0"


def _names(path: Path) -> list[str]:
    """Return the tasks in a file of `CallNote`."""
    text = path.read_bytes().partition(b"\0")[0].decode(errors="replace") if path.exists() else ""
    return text.split("\n") if text else []


@dataclass
class TaskWatch:
    """What is known of tasks whose environments hang; of the batches of episodes that are in progress.

    Attributes:
        answered: some environment has answered in time.
        waited: some environment is written as coroutines, so that calls go side by side.
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
        """Play a batch of these tasks, which are tried anew; all others, too, when no other batch is in progress."""
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

    def check(self, task_id: str) -> None:
        """Refuse a call that would take its whole time again.

        Raises:
            EnvFailure: with the cause of the first one.
        """
        if self._hangs[task_id] >= MAX_HANGS:
            raise EnvFailure(self._causes[task_id])
        if not self.answered and len(self._causes) >= MAX_SILENT_TASKS:
            raise EnvFailure(next(iter(self._causes.values())))

    def hung(self, task_id: str, cause: str, *, reset: bool) -> None:
        """Note a call that was interrupted."""
        self._causes.setdefault(task_id, cause)
        self._hangs[task_id] += MAX_HANGS if reset else 1


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
            with Standing().used():
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
