"""What stands between the agent loop and an environment: a pool, and a guard around each call of an episode's own.

The guard keeps time, remembers tasks that hang, and gives every episode its own copy of what a process has only once:
Python's and numpy's global random generators and the working directory. Episodes are interleaved call by call; without
this, what one of them draws would depend on the others.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rl_agents.envs.base import TextEnv
from rl_agents.rollout.env_calls import EnvFailure, call_env
from rl_agents.rollout.time_limits import CallTimeout, call_with_timeout

T = TypeVar("T")
EnvFactory = Callable[[], TextEnv]
CLOSE_TIMEOUT_S = 10.0
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
        outside = random.getstate(), np.random.get_bit_generator(), _folder()  # type: ignore[attr-defined]
        if self._python is None:
            random.seed(self.seed)
        else:
            random.setstate(self._python)
        np.random.set_bit_generator(self._generator())  # type: ignore[attr-defined]
        _enter(self.folder, outside[2])
        try:
            yield
        finally:
            self._python, self.folder = random.getstate(), _folder()
            random.setstate(outside[0])
            np.random.set_bit_generator(outside[1])  # type: ignore[attr-defined]
            _enter(outside[2], self.folder)


@lru_cache(maxsize=256)
def _seeded(seed: int) -> Any:
    """State of numpy's generator after seeding; not to be changed."""
    return np.random.MT19937(seed).state


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _enter(folder: str, now: str) -> None:
    if folder and folder != now:
        with contextlib.suppress(OSError):
            os.chdir(folder)


class CallNote:
    """The task whose environment is being called, in a file that outlives a process which dies meanwhile.

    Attributes:
        left: the task that the predecessor, which had the same file, did not come back from; empty when there is none.
    """

    SIZE = 512

    def __init__(self, path: Path) -> None:
        self._path = path
        self.left = path.read_bytes().rstrip(b"\0").decode(errors="replace") if path.exists() else ""
        path.write_bytes(bytes(self.SIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), self.SIZE)

    def write(self, task_id: str) -> None:
        """A call begins; an empty ``task_id``: it is over."""
        self._map[:] = task_id.encode()[: self.SIZE].ljust(self.SIZE, b"\0")

    def close(self) -> None:
        """Delete the file."""
        self._map.close()
        self._path.unlink(missing_ok=True)


@dataclass
class TaskWatch:
    """What is known of tasks whose environments hang; of the batches of episodes that are in progress.

    Attributes:
        answered: some environment has answered in time.
        note: what a successor of this process will read.
    """

    answered: bool = False
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
    """Makes the calls of one episode's environment; see the module."""

    def __init__(self, task_id: str, seed: int, timeout_s: float, watch: TaskWatch | None = None) -> None:
        self.task_id, self.timeout_s, self.watch = task_id, timeout_s, watch or TaskWatch()
        self.process = ProcessState(seed)

    def call(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return ``call(*args, **kwargs)``.

        Raises:
            EnvFailure, InputError: see `call_env`; or the task is known to hang.
        """
        self.watch.check(self.task_id)
        note = self.watch.note
        if note is not None:
            note.write(self.task_id)
        try:
            with self.process.applied():
                answer = call_env(self.timeout_s, call, *args, **kwargs)
        except EnvFailure as failure:
            if isinstance(failure.__cause__, CallTimeout):
                self.watch.hung(self.task_id, str(failure), reset=getattr(call, "__name__", "") == "reset")
            raise
        finally:
            if note is not None:
                note.write("")
        self.watch.answered = True
        return answer


class EnvPool:
    """Hands out idle environments and creates new ones when none is idle."""

    def __init__(self, make_env: EnvFactory) -> None:
        self._make_env = make_env
        self._idle: list[TextEnv] = []
        self.created = 0
        self.watch = TaskWatch()
        #: Working directories of environments whose construction changed it.
        self._folders: dict[int, str] = {}

    def take(self) -> TextEnv:
        """Return an environment that nobody else uses; whatever its construction raises is passed on."""
        if self._idle:
            return self._idle.pop()
        folder = _folder()
        try:
            env = self._make_env()
            changed = _folder()
        finally:
            _enter(folder, _folder())
        if changed != folder:
            self._folders[id(env)] = changed
        self.created += 1
        return env

    def guard(self, env: TextEnv | None, task_id: str, seed: int, timeout_s: float) -> EnvGuard:
        """Return the guard of an episode in ``env``."""
        guard = EnvGuard(task_id, seed, timeout_s, self.watch)
        guard.process.folder = self._folders.get(id(env), "")
        return guard

    def give_back(self, env: TextEnv) -> None:
        """Keep the environment of an episode that ended cleanly."""
        self._idle.append(env)

    def discard(self, env: TextEnv) -> None:
        """Close the environment of a failed episode; what it raises while closing no longer matters."""
        self._folders.pop(id(env), None)
        with contextlib.suppress(Exception, SystemExit, CallTimeout):
            call_with_timeout(CLOSE_TIMEOUT_S, env.close)

    def close(self) -> None:
        """Close all idle environments."""
        while self._idle:
            self.discard(self._idle.pop())
