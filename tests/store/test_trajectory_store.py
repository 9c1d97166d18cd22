"""The writer: order, atomicity, who may write, and what happens when it cannot."""

import asyncio
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from store.experience import dialogue

from rl_agents.errors import InputError
from rl_agents.store.files import open_reading, pool_file
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Call, RewardNote, Session, session_records
from rl_agents.store.trajectory_store import PoolError, PoolWriter


def note(place: int) -> RewardNote:
    return RewardNote("s", float(place))


def test_order_is_kept_over_many_threads(tmp_path):
    with PoolWriter(tmp_path / "p", commit_s=0.001) as pool:

        def work(thread: int) -> None:
            for place in range(100):
                pool.add(RewardNote(f"t{thread}", float(place)), RewardNote(f"t{thread}", place + 0.5))

        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool.flush(60)
        with PoolReader(tmp_path / "p") as reader:
            for thread in range(4):
                values = [row.value for row in reader.reward_notes(f"t{thread}")]
                assert values == [place / 2 for place in range(200)]


def test_records_wait_for_each_other(tmp_path):
    """Many small additions at once cost few commits; a lone one waits no longer than it must."""
    with PoolWriter(tmp_path / "p", commit_s=60, commit_rows=50) as pool:
        commits = []
        pool._connection.set_trace_callback(lambda statement: commits.append(statement) if statement == "COMMIT" else 0)
        for future in [pool.add(note(place)) for place in range(200)]:
            future.result(60)
        assert len(commits) <= 8
        lone = pool.add(note(0))
        pool.flush(50)
        assert lone.done()


def test_adding_twice_leaves_one_row(tmp_path):
    records = session_records(dialogue(1), "s")
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(*records)
        pool.add(*records)
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(*records)
    with PoolReader(tmp_path / "p") as reader:
        assert list(reader.trajectories()) == [dialogue(1)]
        assert reader.one("SELECT count(*) FROM calls")[0] == 3


def test_the_first_of_two_calls_of_one_id_stays(tmp_path):
    first, second = (Call(5, 0, [1], [answer], [-0.5], 0, "stop") for answer in (2, 3))
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(first)
        pool.add(second)
        pool.add(Call(6, 5, [1, 2, 9], [4], [-0.5], 0, "stop"))
    with PoolReader(tmp_path / "p") as reader:
        assert [call.response_ids for call in reader.calls()] == [[2], [4]]
        assert [call.prompt_ids for call in reader.calls()] == [[1], [1, 2, 9]]


BAD = [
    Call(5, 0, [-1], [], [], 0, "stop"),
    Call(5, 0, [1], [2], ["x"], 0, "stop"),  # type: ignore[list-item]
    Session("s", "episode", 0, 0, 0, 0, "e", "t", True, False, "", False, True, facts={"a": {1, 2}}),
    "no record",
]


@pytest.mark.parametrize("bad", BAD, ids=str)
def test_a_bad_record_does_not_affect_others(tmp_path, bad):
    with PoolWriter(tmp_path / "p", commit_s=0.2) as pool:
        before = pool.add(Call(1, 0, [1, 2], [3], [-0.5], 0, "stop"))
        wrong = pool.add(Call(2, 1, [1, 2, 3, 4], [5], [-0.5], 0, "stop"), bad)
        after = pool.add(Call(3, 2, [1, 2, 3, 4, 5, 6], [7], [-0.5], 0, "stop"))
        with pytest.raises(InputError, match=r"p: \w+\(.*\) and the 1 records added with it cannot be stored"):
            wrong.result(60)
        before.result(60)
        after.result(60)
    with PoolReader(tmp_path / "p") as reader:
        assert {call.id: call.prompt_ids for call in reader.calls()} == {1: [1, 2], 3: [1, 2, 3, 4, 5, 6]}


async def test_a_waiting_task_may_be_cancelled(tmp_path):
    with PoolWriter(tmp_path / "p", commit_s=0.1) as pool:
        task = asyncio.ensure_future(asyncio.wrap_future(pool.add(note(1))))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wrap_future(pool.add(note(2)))
    with PoolReader(tmp_path / "p") as reader:
        assert [row.value for row in reader.reward_notes("s")] == [1, 2]


def test_a_full_disk_reaches_every_future_and_the_log_once(tmp_path, caplog):
    pool = PoolWriter(tmp_path / "p")
    pool.add(note(0)).result(60)
    pages = pool._connection.execute("PRAGMA page_count").fetchone()[0]
    pool._connection.execute(f"PRAGMA max_page_count = {pages + 1}")  # SQLite's own "database or disk is full"
    futures = [pool.add(RewardNote("s", 1.0, why="x" * 4000)) for _ in range(50)]
    with pytest.raises(PoolError, match=r"p: cannot write to the pool: database or disk is full"):
        futures[-1].result(60)
    with pytest.raises(PoolError, match="full"):
        pool.add(note(1)).result(60)
    with pytest.raises(PoolError, match="full"):
        pool.flush(60)
    pool.close()
    assert [record.message.endswith("full; nothing is recorded from now on") for record in caplog.records] == [True]
    with PoolWriter(tmp_path / "p") as again:  # there is room again: confirmed records are there
        again.add(note(2)).result(60)
    with PoolReader(tmp_path / "p") as reader:
        values = [row.value for row in reader.reward_notes("s")]
        assert (values[0], values[-1], len(values)) == (0, 2, 2 + sum(f.exception() is None for f in futures))


def test_a_locked_file_reaches_the_future(tmp_path):
    pool = PoolWriter(tmp_path / "p")
    pool._connection.execute("PRAGMA busy_timeout = 50")
    other = sqlite3.connect(tmp_path / "p", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(PoolError, match="locked"):
        pool.add(note(0)).result(60)
    other.close()
    pool.close()


def test_a_closed_writer_refuses(tmp_path):
    pool = PoolWriter(tmp_path / "p")
    early = pool.add(note(0))
    pool.close()
    pool.close()
    early.result(0)
    with pytest.raises(PoolError, match="closed"):
        pool.add(note(1)).result(60)
    with pytest.raises(PoolError, match="closed"):
        pool.flush()


def test_one_writer_over_processes(tmp_path):
    code = (
        "import sys; from pathlib import Path; from rl_agents.store.trajectory_store import PoolWriter\n"
        "pool = PoolWriter(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "p")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        with pytest.raises(InputError, match=f"already written to by process {other.pid}"):
            PoolWriter(tmp_path / "p")
    finally:
        other.kill()
        other.communicate()
    PoolWriter(tmp_path / "p").close()


def test_who_takes_over_waits_for_a_writer_that_is_ending(tmp_path):
    before = PoolWriter(tmp_path / "p")
    ending = threading.Timer(0.3, before.close)
    ending.start()
    with PoolWriter(tmp_path / "p", wait_s=60) as after:
        ending.join()
        started = time.monotonic()
        with pytest.raises(InputError, match=r"already written to by process \d+"):
            PoolWriter(tmp_path / "p", wait_s=0.2)
        assert time.monotonic() - started >= 0.2
        after.add(note(0)).result(60)


def test_what_was_added_is_written_at_the_end_of_the_process(tmp_path):
    code = (
        "import sys; from pathlib import Path; from rl_agents.store.trajectory_store import PoolWriter\n"
        "from rl_agents.store.records import RewardNote\n"
        "PoolWriter(Path(sys.argv[1]), commit_s=5).add(RewardNote('s', 1.0))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "p")], check=True, timeout=300)
    with PoolReader(tmp_path / "p") as reader:
        assert len(reader.reward_notes("s")) == 1


def test_only_the_owner_may_read_it(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(note(0)).result(60)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"p": 0o600, "p-wal": 0o600, "p-shm": 0o600, "p.lock": 0o600}


def test_commits_reach_the_disk(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        assert pool._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert pool._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def damaged(path, how: str) -> None:
    if how == "garbage":
        path.write_bytes(b"no database at all " * 300)
    elif how == "another database":
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE t (a)")
    else:
        with PoolWriter(path) as pool:
            for seed in range(60):
                pool.add(*session_records(dialogue(seed), str(seed)))
        if how == "truncated":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        else:
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA user_version = 9")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("garbage", "not a pool, or a damaged one"),
        ("another database", "a database, but not a pool"),
        ("truncated", "damaged|malformed"),
        ("newer", r"written by a newer version \(schema 9; this one knows 3\)"),
    ],
)
def test_files_that_are_no_pool_are_left_alone(tmp_path, how, message):
    path = tmp_path / "p"
    damaged(path, how)
    content = path.read_bytes()
    with pytest.raises(InputError, match=message):
        PoolWriter(path).close()
    with pytest.raises(InputError, match=message), PoolReader(path) as reader:
        list(reader.trajectories())
    assert path.read_bytes() == content


def test_places_where_no_pool_can_be(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "missing" / "p", tmp_path / "file" / "p"):
        with pytest.raises(InputError, match="cannot write a pool there"):
            PoolWriter(place)
        with pytest.raises(InputError, match="no such pool"):
            PoolReader(place)
    with pytest.raises(InputError, match="no such pool"):
        pool_file(tmp_path)
    with pytest.raises(InputError, match="the pool is empty"):
        PoolReader(tmp_path / "file")
    PoolWriter(tmp_path / "file").close()  # a writer died before it began; another one continues


def test_reading_leaves_the_file_as_it_is(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(note(0))
    connection = open_reading(tmp_path / "p")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM reward_notes")
    connection.close()


@pytest.fixture
def other_users_folder():
    """A folder that everybody may read and its owner alone write to, and us as another user where we are root."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)
        os.seteuid(0)


def test_a_folder_of_another_user(other_users_folder):
    path = other_users_folder / "p"
    with PoolWriter(path) as pool:
        pool.add(*session_records(dialogue(1), "s"))
    os.seteuid(65534)
    with pytest.raises(InputError, match="cannot open the pool"):  # mode 600
        PoolReader(path)
    with pytest.raises(InputError, match="cannot write a pool there: Permission denied"):
        PoolWriter(path)
    with pytest.raises(InputError, match="cannot write a pool there: Permission denied"):
        PoolWriter(other_users_folder / "new")
    os.seteuid(0)
    path.chmod(0o644)
    os.seteuid(65534)
    with PoolReader(path) as reader:
        assert list(reader.trajectories()) == [dialogue(1)]
    assert sorted(file.name for file in other_users_folder.iterdir()) == ["p", "p.lock"]


def test_reading_continues_while_rows_are_written(tmp_path):
    with PoolWriter(tmp_path / "p", commit_s=0.001) as pool:
        for seed in range(300):
            pool.add(*session_records(dialogue(seed), str(seed)))
        pool.flush(60)
        with PoolReader(tmp_path / "p") as reader:
            read = []
            for trajectory in reader.trajectories():
                read.append(trajectory)
                if len(read) < 200:
                    pool.add(*session_records(dialogue(300 + len(read)), str(300 + len(read)))).result(60)
    assert read == [dialogue(seed) for seed in (*range(300), *range(301, 500))]
