"""Time that a call spends in our own queues, which no time limit of the call counts.

    counted time = time since the call began - time in which any part of it was queued

A caller with a time limit creates a `QueueWait`, which the call's tasks and the background loop inherit
(`contextvars`). Code that admits calls one by one wraps the wait for admission in `queued`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

#: Seconds between two checks of a queued call whose time is nearly over.
LOOK_S = 0.05


class CallQueue:
    """A queue of calls.

    Attributes:
        name: of the resource, for messages.
        moved: `time.monotonic` of the last admission, or of the next one if it is known.
    """

    def __init__(self, name: str) -> None:
        self.name, self.moved = name, 0.0

    def moves(self, pause_s: float = 0.0) -> None:
        """Note an admission, now or after an intended pause."""
        self.moved = max(self.moved, time.monotonic() + pause_s)


@dataclass(frozen=True, eq=False, slots=True)
class Wait:
    """A part of a call in a queue, which may not move for ``longest_s`` in normal operation."""

    line: CallQueue
    since: float
    longest_s: float


class QueueWait:
    """The times in which parts of one call were queued; safe for threads and signal handlers."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waits: list[Wait] = []
        self._since = self._waited = 0.0
        self._followers: list[QueueWait] = []

    @property
    def waited(self) -> float:
        """Seconds in which at least one part was queued, so far."""
        with self._lock:
            return self._waited + (time.monotonic() - self._since if self._waits else 0.0)

    @property
    def queued(self) -> bool:
        """Whether a part is queued now."""
        return bool(self._waits)

    def stuck(self, limit_s: float) -> str:
        """Return which queue has not moved for longer than ``limit_s`` and its own limit; empty for none."""
        now = time.monotonic()
        with self._lock:
            for wait in self._waits:
                still = now - max(wait.since, wait.line.moved)
                if still > max(limit_s, wait.longest_s):
                    return f"still queued: {wait.line.name} admitted no call for {still:.3g} s"
        return ""

    def begin(self, wait: Wait) -> None:
        with self._lock:
            self._since = self._since if self._waits else time.monotonic()
            self._waits.append(wait)
            for each in self._followers:
                each.begin(wait)

    def end(self, wait: Wait) -> None:
        with self._lock:
            if wait in self._waits:
                self._waits.remove(wait)
                self._waited += 0.0 if self._waits else time.monotonic() - self._since
            for each in self._followers:
                each.end(wait)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Count this call's queueing for the calling code too, while it waits for this call of another caller."""
        mine = current()
        if mine is None:
            yield
            return
        with self._lock:
            self._followers.append(mine)
            for wait in self._waits:
                mine.begin(wait)
        try:
            yield
        finally:
            with self._lock:
                self._followers.remove(mine)
                for wait in self._waits:
                    mine.end(wait)

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Make work that starts in the block a part of this call."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[QueueWait | None] = ContextVar("queue_wait", default=None)


def current() -> QueueWait | None:
    """Return the call that the running code is a part of; None outside of calls with a time limit."""
    return _current.get()


@contextlib.contextmanager
def queued(line: CallQueue, longest_s: float) -> Iterator[None]:
    """Count the block as queueing.

    Args:
        longest_s: seconds for which the queue may not move in normal operation: the longest call that it admits.
    """
    call = current()
    if call is None:
        yield
        return
    wait = Wait(line, time.monotonic(), longest_s)
    call.begin(wait)
    try:
        yield
    finally:
        call.end(wait)


class Deadline:
    """The time limit of the current call.

    Args:
        seconds: 0 or less: no limit.

    Attributes:
        stuck: the limit was reached because a queue does not move, which is not the fault of the call or its server.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.stuck, self._problem = seconds, False, ""
        self._call = current()
        self._end = time.monotonic() + seconds - self._waited()

    @property
    def left(self) -> float:
        """Seconds that remain."""
        return self._end + self._waited() - time.monotonic()

    @property
    def pause(self) -> float | None:
        """Seconds until `problem` may change; None: never."""
        if self.seconds <= 0:
            return None
        return max(self.left, LOOK_S if self._call is not None and self._call.queued else 0.0)

    def problem(self) -> str:
        """Return why the limit was reached; empty before. The first answer that is not empty is final."""
        if self.seconds > 0 and not self._problem:
            stuck = self._call.stuck(self.seconds) if self._call is not None else ""
            self.stuck = bool(stuck)
            self._problem = stuck or (f"no answer within {self.seconds:g} s" if self.left <= 0 else "")
        return self._problem

    def extend(self, seconds: float) -> None:
        self._end, self._problem = self._end + seconds, ""

    def _waited(self) -> float:
        return 0.0 if self._call is None else self._call.waited
