"""Calls of foreign code that are interrupted when they take too long."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from rl_agents.queues import Deadline

T = TypeVar("T")
#: Pauses between interruptions of code that swallows them, in turn: how long its `except` blocks take is not known.
RELENTLESS_S = (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)


class CallTimeout(BaseException):
    """The call took too long. Not an `Exception`, so that ``except Exception`` in the callee does not swallow it."""


class QueueTimeout(CallTimeout):
    """The call's turn did not come: neither its environment nor its server is to blame."""


def over(deadline: Deadline) -> CallTimeout:
    """Return what is raised when a call's time is over."""
    problem = deadline.problem() or f"no answer within {deadline.seconds:g} s"
    return (QueueTimeout if deadline.stuck else CallTimeout)(problem)


def call_with_timeout(seconds: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, interrupted after ``seconds`` of wall-clock time, less that in line for places.

    The limit does not apply (the call just runs) outside the main thread, under a debugger, where the platform has
    no interval timer, and for ``seconds <= 0``. It interrupts Python code, loops with a bare ``except:`` too, and
    system calls such as ``sleep``, not a C extension that never returns. A handler and a timer that were set before
    (pytest-timeout's, for one) are put back, the timer with the time it has left.

    Raises:
        CallTimeout: the limit was reached.
    """
    if seconds <= 0 or not _can_interrupt():
        return call(*args, **kwargs)
    mine: FrameType | None = sys._getframe()
    inside, strikes, deadline = True, 0, Deadline(seconds)

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal strikes
        if frame is mine and not inside:
            return
        if not strikes and not deadline.problem() and deadline.pause:
            signal.setitimer(signal.ITIMER_REAL, deadline.pause, max(seconds, 1.0))
            return
        strikes += 1
        if strikes > 1:
            # Something swallowed the first interruption. The next ones follow so soon that one of them strikes in the
            # `except` block or behind it, where nothing swallows it.
            signal.setitimer(signal.ITIMER_REAL, RELENTLESS_S[strikes % len(RELENTLESS_S)], 1e-3)
        raise over(deadline)

    started = time.monotonic()
    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    # The interval fires again where a bare `except:` in the callee swallows the first interruption.
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, 1.0))
    try:
        return call(*args, **kwargs)
    finally:
        inside = False  # first of all: from here on no interruption is raised
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler or signal.SIG_DFL)
        if delay:
            left = delay - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), interval)
        mine = None  # the frame holds `interrupt`, which holds the frame: a cycle per call, left to the collector


def _can_interrupt() -> bool:
    return (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread() and not debugger_active()
    )


def debugger_active() -> bool:
    """Whether a debugger traces this thread: someone at a breakpoint must not run into a time limit."""
    if sys.gettrace() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and later
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None
