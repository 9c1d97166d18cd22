"""Signals inside an event loop."""

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys

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
    while True:
        try:
            print("waiting", flush=True)
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
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            while child.stdout.readline() != "waiting\n":  # from there on an exception is swallowed
                assert child.poll() is None
            child.send_signal(number)
        _, err = child.communicate(timeout=120)
        assert (child.returncode, err) == (130, "ended by the third signal\n")
    finally:
        child.kill()
