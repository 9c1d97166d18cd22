from __future__ import annotations

import os
import signal
import subprocess
import sys

DEAF = """
import time
from rl_agents.interrupts import Interrupts
with Interrupts() as interrupts:
    print("ready", flush=True)
    while True:
        try:
            with interrupts.abortable():
                time.sleep(60)
        except:
            print("swallowed", flush=True)
"""


def test_the_third_signal_ends_a_process_that_swallows_exceptions() -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "swallowed\n"
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "swallowed\n"
        child.send_signal(signal.SIGTERM)
        _, err = child.communicate(timeout=30)
        assert (child.returncode, err) == (130, "ended by the third signal\n")
    finally:
        child.kill()
