"""How long an environment's calls take that are made in the runner's loop, and where it is better off."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol

#: Seconds of a call, on average, from which others should not wait for it; all calls together before that is judged.
LONG_S, ENOUGH_S = 0.01, 0.1
#: Long calls before that is judged: on a busy machine any call may be.
LONG_CALLS = 2
#: Share of a call's time in which it computes, from which on threads do not help: one computes at a time.
COMPUTING = 0.25
#: Calls of one environment that are timed before there is a second one.
FIRST_CALLS = 2

Started = tuple[float, float]


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
        self._wall = self._cpu = 0.0

    @property
    def begun(self) -> bool:
        """Whether enough is known to let others begin."""
        return self._calls >= FIRST_CALLS

    def waits(self) -> None:
        """The environment is written as coroutines: nobody has to wait for it."""
        if not self.begun:
            self._calls = FIRST_CALLS
            self._on_begun()

    def begin(self) -> Started:
        """A call begins."""
        return time.perf_counter(), time.thread_time()

    def end(self, started: Started, process: Touched) -> None:
        """It is over."""
        wall, cpu = time.perf_counter() - started[0], time.thread_time() - started[1]
        self._calls += 1
        if self._calls == FIRST_CALLS:
            self._on_begun()
        if self._calls == 1 or self.verdict:
            return
        self._wall, self._cpu = self._wall + wall, self._cpu + cpu
        self._long += wall >= LONG_S
        mean = self._wall / (self._calls - 1)
        if self._long < LONG_CALLS or self._wall < ENOUGH_S or mean < LONG_S:
            return
        share = self._cpu / self._wall
        if touched := process.touched():
            self.verdict, why = "process", f"and it {touched}"
        elif share > COMPUTING:
            self.verdict, why = "process", f"{share:.0%} of it computing"
        else:
            self.verdict, why = "thread", f"{1 - share:.0%} of it waiting"
        self.reason = f"a call takes {mean * 1e3:.0f} ms, {why}"
