"""How long an environment's calls take that are made in the runner's loop, and where it is better off.

Of each call three times are taken, all of the thread that makes it:

    wall      from its beginning to its end
    cpu       in which the thread computed
    crowded   in which it could have computed, and other threads and processes had the cores

A call takes  wall - crowded,  which is what it would have taken on a machine of its own, and computes for  cpu  of
that; the rest it waits. Without  crowded,  a call that computes looks like one that waits where many runners share a
core. Only Linux tells it (/proc/thread-self/schedstat); elsewhere it is 0. Not told apart from waiting: what other
processes compute on behalf of a call (a server, a JVM), and waits for Python's lock while another thread holds it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

#: Seconds of a call, on average, from which others should not wait for it; all calls together before that is judged.
LONG_S, ENOUGH_S = 0.01, 0.1
#: Long calls before that is judged: on a busy machine any call may be.
LONG_CALLS = 2
#: Share of a call's own time in which it computes, from which on threads do not help: one computes at a time.
COMPUTING = 0.25
#: Calls of one environment that are timed before there is a second one.
FIRST_CALLS = 2

_statistics = threading.local()


class Times(NamedTuple):
    """Seconds of the calling thread, see the module."""

    wall: float
    cpu: float
    crowded: float

    @classmethod
    def now(cls) -> Times:
        """What the clocks of the calling thread show."""
        return cls(time.perf_counter(), time.thread_time(), crowded())

    def since(self, start: Times) -> Times:
        """What has passed since then."""
        return Times(*(now - then for now, then in zip(self, start, strict=True)))


def crowded() -> float:
    """Seconds that the calling thread has waited for a core, since it began; 0 where the system does not say."""
    thread = threading.get_native_id()
    if getattr(_statistics, "thread", None) != thread:  # a fork has its parent's
        _statistics.thread = thread
        try:
            _statistics.file = open("/proc/thread-self/schedstat", "rb", buffering=0)  # noqa: SIM115  (for its life)
        except OSError:
            _statistics.file = None
    if _statistics.file is None:
        return 0.0
    try:
        return int(os.pread(_statistics.file.fileno(), 64, 0).split()[1]) * 1e-9
    except (OSError, IndexError, ValueError):
        return 0.0


class Touched(Protocol):
    """What an episode has of the process."""

    def touched(self) -> str:
        """What it has changed there, in words; empty for nothing."""
        ...


class Gauge:
    """Times calls until they turn out to be long.

    The first call is left out, for what is loaded once.

    Args:
        on_begun: called when enough is known to let others begin.

    Attributes:
        verdict: ``thread`` or ``process``, where the environment had better be; empty as long as it may stay.
        reason: in words.
    """

    def __init__(self, on_begun: Callable[[], None] = lambda: None) -> None:
        self.verdict: Literal["", "thread", "process"] = ""
        self.reason = ""
        self._on_begun = on_begun
        self._calls = self._long = 0
        self._own = self._cpu = 0.0
        self._touched = ""

    @property
    def begun(self) -> bool:
        """Whether enough is known to let others begin."""
        return self._calls >= FIRST_CALLS

    def waits(self) -> None:
        """The environment is written as coroutines: nobody has to wait for it."""
        if not self.begun:
            self._calls = FIRST_CALLS
            self._on_begun()

    def end(self, started: Times, process: Touched) -> None:
        """A call is over that began at ``started``."""
        took = Times.now().since(started)
        own = max(took.wall - took.crowded, took.cpu)
        self._calls += 1
        if self._calls == FIRST_CALLS:
            self._on_begun()
        if self._calls == 1 or self.verdict:
            return
        self._own, self._cpu = self._own + own, self._cpu + took.cpu
        if own >= LONG_S:
            self._long += 1
            self._touched = self._touched or process.touched()
        mean = self._own / (self._calls - 1)
        if self._long < LONG_CALLS or self._own < ENOUGH_S or mean < LONG_S:
            return
        share = self._cpu / self._own
        if self._touched:
            self.verdict, why = "process", f"and it {self._touched}"
        elif share > COMPUTING:
            self.verdict, why = "process", f"{share:.0%} of it computing"
        else:
            self.verdict, why = "thread", f"{1 - share:.0%} of it waiting"
        self.reason = f"a call takes {mean * 1e3:.0f} ms, {why}"
