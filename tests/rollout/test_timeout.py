import gc
import signal
import sys
import threading
import time

import pytest

from rl_agents.time_limits import CallTimeout, call_with_timeout


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def stubborn(seconds):
    try:
        time.sleep(seconds)
    except Exception:
        return "swallowed"


def deaf(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:  # noqa: SIM105
            time.sleep(1)
        except:  # noqa: E722
            pass


def deaf_twice(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            deaf(seconds)
        except:  # noqa: E722
            print("swallowed", end="")


@pytest.fixture
def no_finalizers():
    """An interruption that strikes in a finalizer of another test's garbage is only printed, and counts there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("hang", [time.sleep, spin, stubborn, deaf, deaf_twice])
def test_a_hang_is_interrupted(hang, no_finalizers):
    started = time.monotonic()
    with pytest.raises(CallTimeout, match=r"no answer within 0\.1 s"):
        call_with_timeout(0.1, hang, 60)
    assert time.monotonic() - started < 60


def test_results_and_errors_pass_and_leave_nothing_behind() -> None:
    assert call_with_timeout(5, max, 1, 2) == 2
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(5, lambda: 1 / 0)
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            assert call_with_timeout(60.0, len, "abc") == 3
        assert gc.collect() < 50
    finally:
        gc.enable()


def test_previous_handler_and_timer_come_back():
    def handler(signum, frame):
        raise AssertionError("fired")

    outer_handler = signal.signal(signal.SIGALRM, handler)
    outer_timer = signal.setitimer(signal.ITIMER_REAL, 100, 7)
    try:
        with pytest.raises(CallTimeout):
            call_with_timeout(0.2, time.sleep, 60)
        assert signal.getsignal(signal.SIGALRM) is handler
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 50 < left < 99.9 and interval == 7
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer_timer)
        signal.signal(signal.SIGALRM, outer_handler)


def test_no_limit_outside_the_main_thread_under_a_debugger_and_for_zero(monkeypatch):
    results = []
    thread = threading.Thread(target=lambda: results.append(call_with_timeout(0.01, stubborn, 0.1)))
    thread.start()
    thread.join()
    assert results == [None]
    assert call_with_timeout(0, stubborn, 0.05) is None
    # With a real trace function, CPython 3.11 spins while a thread of another test sleeps on an interruption.
    monkeypatch.setattr(sys, "gettrace", lambda: print)
    assert call_with_timeout(0.01, stubborn, 0.1) is None
