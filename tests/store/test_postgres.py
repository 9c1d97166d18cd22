"""The same pool in PostgreSQL, against a server that the tests start."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store.experience import dialogue
from store.test_killed_writers import check, start, wait_for
from viewer.made_run import gateway_records, search_records, write_run

from rl_agents.cli import main
from rl_agents.errors import InputError
from rl_agents.store.curation import curate
from rl_agents.store.postgres import without_password
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Batch, Call, Credit, Curation, Event, Exchange, Opening, Outcome, RewardNote
from rl_agents.store.sessions import session_records
from rl_agents.store.trajectory_store import PoolError, PoolWriter
from rl_agents.viewer import groups
from rl_agents.viewer.answers import answer
from rl_agents.viewer.edit import decide
from rl_agents.viewer.export import export
from rl_agents.viewer.runs import find_runs

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
PROGRAMS = [*sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")), *filter(None, [shutil.which("initdb")])]
pytestmark = [pytest.mark.servers, pytest.mark.skipif(not PROGRAMS, reason="no PostgreSQL server on this machine")]
#: The server refuses to run as root; Debian's package makes a user for it.
AS = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


class Server:
    """A server of its own in a folder, on a socket there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, Path(PROGRAMS[-1]).parent
        self.databases = 0
        if AS:
            shutil.chown(folder, "postgres", "postgres")
        command = [self.programs / "initdb", "-D", folder / "data", "-A", "trust", "-U", "pool", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd="/", **AS)
        self.begin()

    def begin(self) -> None:
        command = [
            self.programs / "postgres",
            "-D",
            self.folder / "data",
            "-k",
            self.folder,
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet, cwd="/", **AS)
        deadline = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline and self.process.poll() is None
                time.sleep(0.05)

    def address(self, database: str) -> str:
        return f"postgresql://pool:secret@/{database}?host={self.folder}"

    def new_database(self) -> str:
        self.databases += 1
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE pool{self.databases}")
        return self.address(f"pool{self.databases}")

    def stop(self) -> None:
        self.process.send_signal(2)  # fast shutdown
        self.process.wait(60)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="pg") as folder:
        server = Server(Path(folder))
        yield server
        server.stop()


@pytest.fixture
def place(server: Server) -> str:
    return server.new_database()


def test_trajectories_come_back(place):
    odd = dialogue(7)
    odd.steps[1].action = "nul \0, mark \x1a0000, half \ud800, é 猫"
    odd.facts = {"text\0": "\udfff\0", "number": 1e300, "nan": [None, True]}
    odd.steps[2].reward = float("-inf")
    odd.steps[0].next_step = -1
    written = [*(dialogue(seed) for seed in range(20)), odd]
    with PoolWriter(place) as pool:
        for number, trajectory in enumerate(written):
            pool.add(*session_records(trajectory, f"s{number}", iteration=number // 8)).result(10)
            pool.add(*session_records(trajectory, f"s{number}"))
    with PoolReader(place) as reader:
        assert list(reader.trajectories()) == written
        assert [s.id for s in reader.sessions(Where(iteration=1, success=True))] == ["s8", "s10", "s12", "s14"]
        assert len(list(reader.calls(from_version=1))) == 20  # one step of three; two episodes are of one seed
        assert reader.counts()["calls"] == 60
        assert reader.names("s2", 9) == ["s20", "s2"]
        assert reader.size() > 10_000


def test_every_kind_of_record_comes_back(place):
    records = [
        Outcome("s", 0, 7, "sees", "sees", "does", 0.1, True),
        Batch(3, 0, 5, "s"),
        Credit(3, 0, "s", 1, -0.3, 1.5),
        Curation("s", "reward", 0, 2.0, "me", "why not"),
        Exchange(7, "s", "started", "ab", 1, "responses", {"messages": [{"role": "user", "content": "\ud800"}]}),
        Opening("s", 4, 1, 99, "täsk", "cd", {"question": None}),
        RewardNote("s", 1.0, 7, "good"),
        Event("run", facts={"seed": 1}),
    ]
    with PoolWriter(place) as pool:
        pool.add(*records).result(10)
        bad = pool.add(Call(2**63, 0, [1], [], [], 0, "stop"))
        pool.add(RewardNote("t", 1.0)).result(10)
        with pytest.raises(InputError, match="a record cannot be stored"):
            bad.result(10)
    with PoolReader(place) as reader:
        rows = (row for _, row in reader.curation())
        read = [*reader.outcomes("s"), *reader.batches(), *reader.credit("s"), *rows, *reader.exchanges("s")]
        assert [*read, *reader.openings(), *reader.reward_notes("s"), *reader.events()] == records


def test_leases_and_decisions(place):
    with PoolWriter(place) as pool:
        for seed in range(3):
            pool.add(*session_records(dialogue(seed), str(seed), iteration=seed))
        pool.add(Batch(0, 0, 0, "0"), Event("checkpoint", 1), Batch(1, 0, 0, "1"), Batch(1, 1, 0, "1")).result(10)
        assert curate(place, [Curation("2", "exclude"), Curation("0", "reward", value=9.0)]) == [1, 2]
    with PoolReader(place) as reader:
        assert [stored.state for stored in reader.stored()] == ["trained", "leased", "ready"]
        assert [t.episode_return for t in reader.trajectories()] == [9.25, 0.75]
    with PoolWriter(place) as pool:
        pool.add(Event("resumed", 1), Batch(1, 0, 0, "1"))
    with PoolReader(place) as reader:
        assert (len(reader.batches()), len(reader.batches(current=False))) == (2, 4)


def test_several_writers_at_once(place):
    def write(number: int) -> None:
        with PoolWriter(place, commit_s=0.001) as pool:
            for seed in range(40):
                pool.add(*session_records(dialogue(seed), f"shared{seed}"))  # all write these
                pool.add(*session_records(dialogue(1000 * number + seed), f"own{number}.{seed}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with PoolReader(place) as reader:
        names = [session.id for session in reader.sessions()]
        assert len(names) == len(set(names)) == 200
        for number in range(1, 5):
            own = [name for name in names if name.startswith(f"own{number}.")]
            assert own == [f"own{number}.{seed}" for seed in range(40)]
        assert all(trajectory == dialogue(trajectory.seed) for trajectory in reader.trajectories())


def test_killed_writers_lose_nothing_that_they_promised(place, tmp_path):
    promised: set[int] = set()
    for kill in range(4):
        writers = [start(place, tmp_path / f"{kill}-{part}", 10_000 * part, 10**9) for part in range(2)]
        wait_for(tmp_path / f"{kill}-1", 30)
        for part, writer in enumerate(writers):
            writer.kill()
            writer.wait()
            done = tmp_path / f"{kill}-{part}"
            promised |= set(map(int, done.read_text("ascii").split() if done.exists() else []))
        check(place, promised)
    assert promised


def test_a_server_that_goes_away_reaches_every_future(server):
    place = server.new_database()
    pool = PoolWriter(place)
    pool.add(RewardNote("s", 1.0)).result(10)
    server.stop()
    try:
        for _ in range(2):
            with pytest.raises(PoolError, match="cannot write to the pool") as raised:
                pool.add(RewardNote("s", 2.0)).result(10)
            assert "secret" not in str(raised.value)
        pool.close()
        with pytest.raises(InputError, match="cannot connect") as refused:
            PoolReader(place)
        assert "secret" not in str(refused.value)
    finally:
        server.begin()
    with PoolReader(place) as reader:
        assert [note.value for note in reader.reward_notes("s")] == [1.0]


def test_what_is_no_pool_is_refused(place):
    with pytest.raises(InputError, match="there is no pool in this database"):
        PoolReader(place)
    PoolWriter(place).close()
    with psycopg.connect(place) as connection:
        connection.execute("UPDATE pool_version SET version = 9")
    for opened in (PoolReader, PoolWriter):
        with pytest.raises(InputError, match=r"newer version \(schema 9"):
            opened(place)
    assert without_password("postgresql://me:pw@host/db?password=x&a=b") == "postgresql://me@host/db?password=...&a=b"


def test_the_command_line(place, capsys, tmp_path):
    with PoolWriter(place) as pool:
        for seed in range(3):
            pool.add(*session_records(dialogue(seed), f"s{seed}"))
    for action in (["exclude", "s1"], ["list"], ["show", "s2"], ["stats"], ["decisions"], ["undo", "1"]):
        assert main(["pool", place, *action]) == 0, action
    capsys.readouterr()
    assert main(["pool", place, "stats", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tokens_sampled"] == 180
    assert main(["pool", place, "export", "--output", str(tmp_path / "a.jsonl")]) == 0
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3


def test_the_explorer_reads_it_as_it_reads_a_file(server, tmp_path, monkeypatch):
    """Every view gives the same of the same records, in a file and in a database; decisions reach both."""
    monkeypatch.setattr(groups, "PATIENCE_S", 600.0)  # a page of a slow search would end early, and say so
    address = server.new_database()
    records = [*search_records(), *gateway_records()]
    folder = write_run(tmp_path / "pool.of.a.run")
    write_run(tmp_path / "empty", pool=address)
    for place in (folder / "pool.sqlite", address):
        with PoolWriter(place) as pool:
            pool.add(*records)
    file, database = find_runs([str(folder / "pool.sqlite")]), find_runs([address])
    (one,), (other,) = file.runs, database.runs
    assert other == address.partition("?")[0].rpartition("/")[2]
    here = {"iteration": "1"}
    for view, values in [
        ("groups", here), ("groups", {**here, "text": "DROP IT"}), ("groups", {**here, "flat": "1"}),
        ("iterations", {}),
        ("steps", here), ("group", {**here, "group": "0"}), ("episode", {"session": "i1.g0.m0"}), ("searches", {}),
        ("tokens", {"session": "i1.g0.m0", "ordinal": "1"}), ("tree", {"seed": "77"}),
        ("episode", {"session": "i0.g9.m0"}), ("episode", {"session": "sub"}), ("task", {"task": "task/a"}),
        ("search", {"text": "Take The Lamp"}),
        ("text", {"session": "i1.g1.m0", "ordinal": "0", "field": "observation", "start": "999990"}),
    ]:  # fmt: skip
        theirs = answer(database, view, {**values, "run": other}).replace(other, one)
        mine = json.loads(answer(file, view, {**values, "run": one}))
        assert without_order(json.loads(theirs)) == without_order(mine), (view, values)
    before = database.runs[other].stamp()
    assert database.runs[other].is_live()
    decide(find_runs([address], edit=True), {"run": other, "session": "i1.g0.m1", "verdict": "exclude"})
    assert database.runs[other].stamp() != before
    excluded = json.loads(answer(database, "groups", {**here, "run": other, "outcome": "excluded"}))["rows"]
    assert [row["group"] for row in excluded] == [0]
    assert export(database, tmp_path / "out", 1).endswith("MB")
    with pytest.raises(InputError, match="no pool in this database"):
        find_runs([server.new_database()])


def without_order(data):
    """Equal counts of causes have no order among them."""
    return {name: value for name, value in data.items() if name not in ("kinds", "causes")}
