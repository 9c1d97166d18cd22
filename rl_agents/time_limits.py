"""Time limits of calls of a user's code, which may hang."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any, TypeVar

from rl_agents.errors import defined_at
from rl_agents.queues import Deadline

T = TypeVar("T")
#: Pauses between interruptions of code that swallows them, in turn, because the time of its `except` blocks varies.
RELENTLESS_S = (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4)


class CallTimeout(BaseException):
    """The call took too long. It is no `Exception`, so that ``except Exception`` in the callee does not swallow it."""


class QueueTimeout(CallTimeout):
    """The call never left the queue, so neither its environment nor its server is responsible."""


def over(deadline: Deadline) -> CallTimeout:
    problem = deadline.problem() or f"no answer within {deadline.seconds:g} s"
    return (QueueTimeout if deadline.stuck else CallTimeout)(problem)


def call_with_timeout(seconds: float, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``call(*args, **kwargs)``, interrupted after ``seconds`` of wall-clock time, excluding time in queues.

    There is no limit outside the main thread, under a debugger, without the platform's interval timer, and for
    ``seconds <= 0``. The limit interrupts Python code, including loops with a bare ``except:``, and system calls such
    as ``sleep``, but not a C extension that never returns. A handler and a timer that were set before (such as
    pytest-timeout's) are restored, the timer with its remaining time.

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
            # The first interruption was swallowed. The next ones follow so quickly that one of them hits the `except`
            # block or the code after it, where nothing swallows it.
            signal.setitimer(signal.ITIMER_REAL, RELENTLESS_S[strikes % len(RELENTLESS_S)], 1e-3)
        raise over(deadline)

    started = time.monotonic()
    previous_handler = signal.signal(signal.SIGALRM, interrupt)
    # The interval fires again if a bare `except:` in the callee swallows the first interruption.
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, max(seconds, 1.0))
    try:
        return call(*args, **kwargs)
    finally:
        inside = False  # must be first: no interruption is raised from here on
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler or signal.SIG_DFL)
        if delay:
            left = delay - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), interval)
        mine = None  # breaks the reference cycle of the frame and `interrupt`


def _can_interrupt() -> bool:
    return (
        hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread() and not debugger_active()
    )


def debugger_active() -> bool:
    """Whether a debugger traces this thread, so that a breakpoint does not run into a time limit."""
    if sys.gettrace() is not None:
        return True
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and later
    return monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None


def call_anywhere(seconds: float, call: Callable[..., T], *args: Any) -> T:
    """As `call_with_timeout`, also outside the main thread: a thread makes the call, and is abandoned after the limit.

    Raises:
        CallTimeout: the limit was reached.
    """
    if seconds <= 0 or threading.current_thread() is threading.main_thread():
        return call_with_timeout(seconds, call, *args)
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call(*args))
        except BaseException as error:
            answer.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # the call's own error
            raise
        interrupt(thread.ident)
        raise CallTimeout(f"no answer within {seconds:g} s") from None


def interrupt(thread: int | None) -> None:
    """Raise `CallTimeout` in a thread as soon as it runs a line of Python."""
    if thread is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(CallTimeout))


def no_answer(function: Callable[..., Any], seconds: float, key: str) -> TimeoutError:
    """Return the error of a user's function that reached the limit of the key ``key``."""
    name = getattr(function, "__name__", type(function).__name__)
    return TimeoutError(f"{name}() gave no answer within {seconds:g} s ({key}){defined_at(function)}")
