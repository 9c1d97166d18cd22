"""Time that a call waits in one of our queues: its server has not had that time, so no time limit counts it.

    time that counts = time since the call began - time in which any part of it was queued

Who makes a call under a limit gives it a `QueueWait`, which goes with it into its tasks and the background loop
(`contextvars`). Whatever lets calls go in turn wraps the wait for the turn in `in_line`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

#: Seconds between two looks at a call in line whose time is nearly over.
LOOK_S = 0.05


class Line:
    """Where calls stand until there is a place.

    Attributes:
        name: of what they wait for, in messages.
        moved: when one of them was let in last, or is to be next where that is known; of `time.monotonic`.
    """

    def __init__(self, name: str) -> None:
        self.name, self.moved = name, 0.0

    def moves(self, pause_s: float = 0.0) -> None:
        """One is let in now, or after a pause that is somebody's will."""
        self.moved = max(self.moved, time.monotonic() + pause_s)


@dataclass(frozen=True, eq=False, slots=True)
class Wait:
    """One part of a call in a line, which may stand still for ``longest_s`` while all is well."""

    line: Line
    since: float
    longest_s: float


class QueueWait:
    """When the parts of one call stood in line; safe for threads, and for a signal's handler."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waits: list[Wait] = []
        self._since = self._waited = 0.0
        self._followers: list[QueueWait] = []

    @property
    def waited(self) -> float:
        """Seconds in which at least one part stood in line, so far."""
        with self._lock:
            return self._waited + (time.monotonic() - self._since if self._waits else 0.0)

    @property
    def in_line(self) -> bool:
        """Whether a part does now."""
        return bool(self._waits)

    def stuck(self, limit_s: float) -> str:
        """Say which line has not moved for longer than it may and than ``limit_s``; empty for none."""
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
        """While the calling code waits for this call, which somebody else has made, it stands in line with it."""
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
        """What begins meanwhile is part of this call."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[QueueWait | None] = ContextVar("standing", default=None)


def current() -> QueueWait | None:
    """The call that the running code is part of; None where nobody asks."""
    return _current.get()


@contextlib.contextmanager
def in_line(line: Line, longest_s: float) -> Iterator[None]:
    """While the calling code waits for its turn.

    Args:
        longest_s: seconds that the line may stand still while all is well: what one call with a place may take.
    """
    standing = current()
    if standing is None:
        yield
        return
    wait = Wait(line, time.monotonic(), longest_s)
    standing.begin(wait)
    try:
        yield
    finally:
        standing.end(wait)


class Deadline:
    """When the calling code's call has had its time.

    Args:
        seconds: 0 or less: never.

    Attributes:
        stuck: it is over because a line stands still, for which neither call nor server is to blame.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.stuck, self._problem = seconds, False, ""
        self._standing = current()
        self._end = time.monotonic() + seconds - self._waited()

    @property
    def left(self) -> float:
        """Seconds that the call still has."""
        return self._end + self._waited() - time.monotonic()

    @property
    def pause(self) -> float | None:
        """Seconds until `problem` may say something else; None: it never will."""
        if self.seconds <= 0:
            return None
        standing = self._standing
        return max(self.left, LOOK_S if standing is not None and standing.in_line else 0.0)

    def problem(self) -> str:
        """Why nobody waits for the call any longer; empty while somebody does. What it was once, it stays."""
        if self.seconds > 0 and not self._problem:
            stuck = self._standing.stuck(self.seconds) if self._standing is not None else ""
            self.stuck = bool(stuck)
            self._problem = stuck or (f"no answer within {self.seconds:g} s" if self.left <= 0 else "")
        return self._problem

    def extend(self, seconds: float) -> None:
        self._end, self._problem = self._end + seconds, ""

    def _waited(self) -> float:
        return 0.0 if self._standing is None else self._standing.waited
