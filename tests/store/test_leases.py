"""Which sessions may be learned from: over updates, checkpoints, kills and resumptions."""

import sqlite3
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.store.records import BatchRow, Event, Session
from rl_agents.store.schema import APPLICATION, script
from rl_agents.store.trajectory_store import PoolWriter


def session(name: str) -> Session:
    return Session(name, "episode", 0, 0, 0, 0, "e", "t", True, False, "terminated", False, True)


def states(path) -> dict[str, tuple[str, int]]:
    with PoolReader(path) as reader:
        return {stored.session.id: (stored.state, stored.learned_in) for stored in reader.stored()}


def test_a_resumption_gives_back_what_its_checkpoint_had_not_learned(tmp_path):
    path = tmp_path / "p"
    with PoolWriter(path) as pool:
        pool.add(*(session(name) for name in "abc"))
        pool.add(BatchRow(0, 0, 0, "a"), Event("checkpoint", 1), BatchRow(1, 0, 0, "b"), Event("checkpoint", 2))
        pool.add(BatchRow(2, 0, 0, "c"))
    with PoolWriter(path) as pool:  # the last checkpoint was damaged: the run continues from the one before
        pool.add(Event("resumed", 1)).result(60)
        assert states(path) == {"a": ("trained", 0), "b": ("ready", -1), "c": ("ready", -1)}
        pool.add(BatchRow(1, 0, 0, "b")).result(60)  # the same row as before the kill, and a new one
        assert states(path) == {"a": ("trained", 0), "b": ("leased", 1), "c": ("ready", -1)}
        pool.add(BatchRow(1, 0, 0, "b"), Event("checkpoint", 2)).result(60)
        assert states(path)["b"] == ("trained", 1)
    with PoolReader(path) as reader:
        assert [batch.session for batch in reader.batches()] == ["a", "b"]
        assert reader.one("SELECT count(*) FROM batches")[0] == 4, "what was discarded stays in the file"
        assert [s.id for s in reader.sessions(StoreQuery(state="ready"))] == ["c"]


def test_what_a_resumption_took_back_is_hidden_until_asked_for(tmp_path):
    played = [replace(session(name), iteration=iteration) for name, iteration in (("a", 0), ("b", 1), ("b.r1", 1))]
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(*played[:2], Event("resumed", 1), played[2])
    with PoolReader(tmp_path / "p") as reader:
        assert [s.id for s in reader.sessions()] == ["a", "b.r1"]
        assert [s.id for s in reader.sessions(StoreQuery(lost=True))] == ["b"]
        assert [s.id for s in reader.sessions(StoreQuery(ids=["b"]))] == ["b"]


events = st.lists(
    st.tuples(st.just("batch"), st.integers(0, 4), st.sampled_from("abc"))
    | st.tuples(st.sampled_from(["checkpoint", "resumed"]), st.integers(0, 4), st.just("")),
    max_size=12,
)


def expected(history: list[tuple[str, int, str]]) -> dict[str, tuple[str, int]]:
    """The states by the words of `records.BatchRow`, one event after the other."""
    rows: list[list] = []  # iteration, session, state
    for kind, iteration, name in history:
        if kind == "batch":
            if [iteration, name] not in [row[:2] for row in rows if row[3]]:
                rows.append([iteration, name, "leased", True])
            continue
        if kind == "resumed":
            rows = [row for row in rows if row[0] < iteration]
            for row in rows:
                row[3] = False
        for row in rows:
            if row[0] < iteration:
                row[2] = "trained"
    return {name: (state, iteration) for iteration, name, state, _ in rows}


@settings(deadline=None, max_examples=200)
@given(events)
def test_states_follow_any_history(history):
    """On the views themselves, with rows as the writer numbers them."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(f"{script()} PRAGMA application_id = {APPLICATION};")
    epoch = 0
    for number, (kind, iteration, name) in enumerate(history, start=1):
        if kind == "batch":
            row = (number, iteration, name, epoch)
            connection.execute("INSERT OR IGNORE INTO batches VALUES (?, ?, 0, 0, ?, ?)", row)
        else:
            connection.execute("INSERT INTO events VALUES (?, ?, ?, '{}', 0)", (number, kind, iteration))
            epoch = number if kind == "resumed" else epoch
    rows = connection.execute("SELECT session, state, iteration FROM lease").fetchall()
    assert {name: (state, iteration) for name, state, iteration in rows} == expected(history)


def test_a_state_is_looked_up_and_not_searched_for(tmp_path):
    PoolWriter(tmp_path / "p").close()
    with sqlite3.connect(tmp_path / "p") as connection:
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM lease WHERE session IN ('a', 'b')").fetchall()
    assert any("SEARCH b USING COVERING INDEX" in row[3] for row in plan), plan
    assert not any("SCAN b" in row[3] for row in plan), plan
