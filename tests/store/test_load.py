"""Many calls, in memory that does not grow with them; ``POOL_CALLS=100000`` for more of them."""

import os
import subprocess
import sys

import pytest

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.store.records import session_records
from rl_agents.store.trajectory_store import PoolWriter

#: Prints the process's memory (MiB) after a tenth of the calls and after all of them.
READ = """
import sys, psutil
from pathlib import Path
from rl_agents.store import packing
from rl_agents.store.reader import PoolReader
packing.RECENT_BYTES = 5_000_000
memory = lambda: psutil.Process().memory_info().rss / 2**20
with PoolReader(Path(sys.argv[1])) as reader:
    items = {"calls": reader.calls, "trajectories": reader.trajectories, "stored": reader.stored}[sys.argv[2]]()
    for count, item in enumerate(items, start=1):
        if count == int(sys.argv[3]):
            print(memory())
print(memory(), count)
"""
STEPS = 8
SESSIONS = int(os.environ.get("POOL_CALLS", "24000")) // STEPS


def episode(number: int) -> Trajectory:
    steps = [
        Step([number % 100] * (40 + 24 * turn), [turn] * 16, [-0.5] * 16, 0, "stop", "sees", "sees", "does",
             call=1 + number * STEPS + turn)
        for turn in range(STEPS)
    ]  # fmt: skip
    return Trajectory("t", number // 8, number % 8, number, steps, terminated=True, facts={"evidence": "e" * 200})


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "pool.sqlite"
    with PoolWriter(path) as pool:
        for number in range(SESSIONS):
            pool.add(*session_records(episode(number), str(number)))
            if number % 500 == 0:
                pool.flush(60)
    return path


@pytest.mark.parametrize(("items", "count"), [("calls", SESSIONS * STEPS), ("stored", SESSIONS)])
def test_reading_does_not_fill_the_memory(large, items, count):
    command = [sys.executable, "-c", READ, str(large), items, str(count // 10)]
    early, late, found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout.split()
    assert int(found) == count
    assert float(late) - float(early) < 12  # the recent calls, at most 5 MB
