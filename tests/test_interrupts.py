"""Signals inside an event loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import time

import pytest

from rl_agents.interrupts import event_loop


async def interrupted(error: type[BaseException]) -> None:
    async def driver() -> None:
        raise error

    tasks = [asyncio.create_task(driver())]
    await asyncio.sleep(0.01)
    tasks.clear()


@pytest.mark.parametrize(("error", "complaints"), [(KeyboardInterrupt, 0), (ValueError, 1)])
def test_a_task_that_a_signal_ends_leaves_no_traceback(error, complaints, caplog) -> None:
    runner = event_loop()
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                runner.run(interrupted(error))
        else:
            runner.run(interrupted(error))
        runner.close()
        gc.collect()
    assert sum("never retrieved" in record.message for record in caplog.records) == complaints


DEAF = """
import time
from rl_agents.interrupts import Interrupts
with Interrupts() as interrupts, interrupts.abortable():
    print("ready", flush=True)
    while True:
        try:
            time.sleep(60)
        except:
            print("swallowed", flush=True)
"""


def test_the_third_signal_ends_a_process_that_swallows_exceptions() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert child.stdout is not None
        for said, number in [("ready", signal.SIGTERM), ("swallowed", signal.SIGINT), ("swallowed", signal.SIGTERM)]:
            assert child.stdout.readline() == f"{said}\n"
            time.sleep(0.5)  # until it sleeps: an exception elsewhere is not swallowed
            child.send_signal(number)
        _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (130, "ended by the third signal\n")
    finally:
        child.kill()


#: Locks a mutex of C twice; the C library waits on, whatever signal arrives.
STUCK = """
import ctypes
from rl_agents.interrupts import Interrupts
from rl_agents.rollout.env_calls import call_with_timeout
lock, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
with Interrupts() as interrupts, interrupts.abortable():
    libc.pthread_mutex_lock(lock)
    print("ready", flush=True)
    call_with_timeout(0.2, libc.pthread_mutex_lock, lock)
"""


def test_nothing_but_sigkill_ends_c_code_that_never_returns() -> None:
    """As docs/explanation/architecture.md says of local mode; should this fail one day, it can promise more."""
    child = subprocess.Popen(
        [sys.executable, "-c", STUCK], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(2)  # from the line to the call in C
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGTERM):
            child.send_signal(number)
            time.sleep(0.3)
        assert child.poll() is None, child.communicate()
        child.kill()
        assert child.wait(timeout=30) == -signal.SIGKILL
    finally:
        child.kill()
        child.communicate()
