"""kill -9 of a writing process at random instants; ``POOL_KILLS=100`` for more of them."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from store.experience import dialogue

from rl_agents.errors import InputError
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import session_records
from rl_agents.store.trajectory_store import PoolWriter

KILLS = int(os.environ.get("POOL_KILLS", "4"))
FOLDERS = os.pathsep.join([*(str(folder) for folder in Path(__file__).parents[1:3]), os.environ.get("PYTHONPATH", "")])


def start(path: Path | str, acknowledged: Path, first: int, last: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(__file__).with_name("killed_writer.py")), str(path), str(acknowledged)]
    return subprocess.Popen([*command, str(first), str(last)], env={**os.environ, "PYTHONPATH": FOLDERS})


def wait_for(path: Path, seconds: float) -> None:
    """Wait until a file is there and not empty, so that the next kill finds work under way."""
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.002)


def check(path: Path | str, promised: set[int]) -> int:
    """All that was promised is there, all that is there is whole, and nothing is there twice."""
    with PoolReader(path) as reader:
        found = [int(session.id) for session in reader.sessions()]
        assert len(found) == len(set(found))
        assert promised <= set(found)
        assert all(trajectory == dialogue(trajectory.seed) for trajectory in reader.trajectories())
        assert isinstance(path, str) or reader.one("PRAGMA integrity_check") == ("ok",)
    return len(found)


def test_a_killed_writer_loses_nothing_that_it_promised(tmp_path):
    path, rng = tmp_path / "pool.sqlite", random.Random(os.urandom(8))
    promised: set[int] = set()
    more = 0
    for kill in range(KILLS):
        acknowledged = tmp_path / f"done-{kill}"
        first = max(0, max(promised, default=0) - 60)  # what was under way, and some that is there already
        writer = start(path, acknowledged, first, 10**9)
        try:
            if kill % 3:
                wait_for(acknowledged, 60)
                time.sleep(rng.uniform(0, 0.1))
            else:  # while it starts, opens the file or recovers the log
                time.sleep(rng.uniform(0.1, 0.5))
        finally:
            writer.kill()
            writer.wait()
        lines = acknowledged.read_text("ascii").split() if acknowledged.exists() else []
        promised |= set(map(int, lines))
        try:
            more += check(path, promised) - len(promised)
        except InputError:  # killed before there was anything
            assert not promised
    last = max(promised) + 100
    assert start(path, tmp_path / "done", 0, last).wait(400) == 0  # all of it once more: duplicates are left out
    assert check(path, set(range(last))) == last
    print(f"{KILLS} kills, {len(promised)} episodes promised, {more} more found after kills, {last} in the end")


def test_a_torn_log_is_a_shorter_log(tmp_path):
    """A power cut may end the log anywhere, or in garbage: then the last additions are missing, each as a whole."""
    path, rng = tmp_path / "p", random.Random(0)
    with PoolWriter(path, commit_rows=1) as pool:
        for number in range(40):
            pool.add(*session_records(dialogue(number), str(number))).result(60)
        main, log = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    left = []
    for attempt in range(20):
        torn = tmp_path / f"torn-{attempt}"
        torn.write_bytes(main)
        end = rng.randrange(len(log))
        Path(f"{torn}-wal").write_bytes(log[:end] + rng.randbytes(rng.choice((0, 5000))))
        try:
            left.append(check(torn, set()))
        except InputError:  # not even the tables are there
            continue
        with PoolReader(torn) as reader:
            assert [session.id for session in reader.sessions()] == [str(number) for number in range(left[-1])]
        with PoolWriter(torn) as pool:  # and a writer continues
            pool.add(*session_records(dialogue(99), "99")).result(60)
        check(torn, {99})
    assert len(set(left)) > 5
