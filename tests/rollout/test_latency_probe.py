"""What the gauge makes of calls that compute and that wait, on a machine of their own and on one that many share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_agents.rollout.latency_probe import Gauge, Times, crowded

#: Shares one core with five others that compute all the time, and says what the gauge says of ten calls.
CROWDED = """
import os, subprocess, sys, time
from rollout.test_latency_probe import compute, judged
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(5)]
try:
    time.sleep(0.3)
    gauge = judged({"computes": lambda: compute(0.03), "waits": lambda: time.sleep(0.03),
                    "short": lambda: compute(0.002)}[sys.argv[1]], int(sys.argv[2]))
finally:
    for other in others:
        other.kill()
print(gauge.verdict or "stays")
"""


class Untouched:
    def touched(self) -> str:
        return ""


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def judged(call: object, calls: int = 10) -> Gauge:
    gauge = Gauge()
    for _ in range(calls):
        started = Times.now()
        call()  # type: ignore[operator]
        gauge.end(started, Untouched())
    return gauge


def test_calls_that_compute_and_calls_that_wait() -> None:
    assert judged(lambda: compute(0.03)).verdict == "process"
    assert judged(lambda: time.sleep(0.03)).verdict == "thread"
    assert judged(lambda: compute(0.001), 50).verdict == ""


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="nobody says who waits for a core")
@pytest.mark.parametrize(
    ("kind", "verdict", "calls"), [("computes", "process", 10), ("waits", "thread", 10), ("short", "stays", 60)]
)
def test_other_processes_on_the_core_do_not_change_the_verdict(kind: str, verdict: str, calls: int) -> None:
    """A call of 2 ms takes 12 ms there, and one that computes has a sixth of the core."""
    tests = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent)])}
    command = [sys.executable, "-c", CROWDED, kind, str(calls)]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert out.stdout.strip() == verdict, out.stderr


def test_time_without_a_core_only_grows() -> None:
    before = crowded()
    compute(0.01)
    assert crowded() >= before >= 0.0
