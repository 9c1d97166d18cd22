"""What is known of tasks whose environments hang or end their process, so that they are not waited for again."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rl_agents.rollout.env_calls import EnvFailure

#: Steps of a task that may hang before its other episodes are given up; a reset that hangs is enough.
MAX_HANGS = 3
#: Tasks that hang, while no environment has answered at all, before all others are given up.
MAX_SILENT_TASKS = 3


class CallNote:
    """The tasks whose environments are being called, in a file that outlives a process which dies meanwhile.

    Calls that threads make run concurrently: then several tasks are suspected. They are remembered, too, and called
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

    @contextlib.contextmanager
    def calling(self, task_id: str) -> Iterator[None]:
        self._running.append(task_id)
        self._write()
        try:
            yield
        finally:
            self._running.remove(task_id)
            self._write()

    def alone(self, task_id: str) -> contextlib.AbstractAsyncContextManager[None]:
        return self._one if task_id in self.suspects else contextlib.nullcontext()

    def close(self) -> None:
        self._map.close()
        self._path.unlink(missing_ok=True)
        self._suspected.unlink(missing_ok=True)

    def _write(self) -> None:
        text = "\n".join(self._running).encode()[: self.SIZE - 1]
        self._map[: len(text) + 1] = text + b"\0"


def _names(path: Path) -> list[str]:
    text = path.read_bytes().partition(b"\0")[0].decode(errors="replace") if path.exists() else ""
    return text.split("\n") if text else []


@dataclass
class TaskWatch:
    """What is known of tasks whose environments hang; of the batches of episodes that are in progress.

    Attributes:
        answered: some environment has answered in time.
        waited: some environment is written as coroutines, so that calls go concurrently.
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
        """Run a batch of these tasks, which are tried again; all others, too, when no other batch is in progress."""
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

    def alone(self, task_id: str) -> contextlib.AbstractAsyncContextManager[None]:
        return contextlib.nullcontext() if self.note is None else self.note.alone(task_id)

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
        self._causes.setdefault(task_id, cause)
        self._hangs[task_id] += MAX_HANGS if reset else 1
