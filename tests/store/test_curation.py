"""Decisions of people: replayed, undone, and applied to what is read."""

from __future__ import annotations

import pytest
from store.experience import dialogue

from rl_agents.errors import InputError
from rl_agents.store.curation import Decision, curate, effective
from rl_agents.store.reader import PoolReader, Where
from rl_agents.store.records import Curation, session_records
from rl_agents.store.trajectory_store import PoolWriter


def decide(*rows: Curation) -> Decision:
    return effective(enumerate(rows, start=1)).get("s", Decision())


def test_later_decisions_win():
    assert decide(Curation("s", "exclude")).excluded
    assert decide(Curation("s", "exclude"), Curation("s", "keep")) == Decision(kept=True)
    assert decide(Curation("s", "keep"), Curation("s", "exclude")) == Decision(excluded=True)
    assert decide(Curation("s", "weight", value=2.0), Curation("s", "weight", value=0.5)).weight == 0.5
    assert decide(Curation("other", "exclude")).empty


def test_a_note_changes_nothing():
    assert decide(Curation("s", "note", why="odd")).empty
    excluded = decide(Curation("s", "exclude"), Curation("s", "exclude", 1), Curation("s", "weight", value=2.0))
    noted = (Curation("s", "note", why="odd"), Curation("s", "note", 1, why="odd"))
    assert decide(
        Curation("s", "exclude"), Curation("s", "exclude", 1), Curation("s", "weight", value=2.0), *noted
    ) == (excluded)


def test_an_undone_decision_never_was():
    exclude, undo = Curation("s", "exclude"), Curation("s", "exclude", undoes=1)
    assert decide(exclude, undo).empty
    assert decide(exclude, undo, exclude).excluded
    assert decide(Curation("s", "reward", 0, 1.0), Curation("s", "reward", 0, 2.0),
                  Curation("s", "reward", 0, undoes=2)).rewards == {0: 1.0}  # fmt: skip
    assert decide(exclude, undo, Curation("s", "exclude", undoes=2)).empty  # undoing an undo decides nothing


def test_steps_have_decisions_of_their_own():
    decision = decide(
        Curation("s", "exclude", 1), Curation("s", "exclude", 2), Curation("s", "keep", 2),
        Curation("s", "weight", value=0.5), Curation("s", "weight", 0, 4.0),
    )  # fmt: skip
    assert [decision.weight_of(ordinal) for ordinal in range(3)] == [2.0, 0.0, 0.5]
    assert not decision.excluded
    assert decide(Curation("s", "exclude")).weight_of(0) == 0


def test_a_session_s_reward_is_its_last_step_s():
    steps = dialogue(1).steps
    rewards = lambda *rows: [step.reward for step in decide(*rows).rewarded(steps)]  # noqa: E731
    assert rewards() == [0, 0.25, 0.5]
    assert rewards(Curation("s", "reward", value=-1.0)) == [0, 0.25, -1]
    assert rewards(Curation("s", "reward", 2, 3.0), Curation("s", "reward", value=-1.0)) == [0, 0.25, -1]
    assert rewards(Curation("s", "reward", value=-1.0), Curation("s", "reward", 2, 3.0)) == [0, 0.25, 3]
    assert rewards(Curation("s", "reward", 9, 3.0)) == [0, 0.25, 0.5]


@pytest.fixture
def pool(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        for seed in range(4):
            pool.add(*session_records(dialogue(seed), str(seed)))
        pool.add(Curation("1", "exclude"), Curation("2", "reward", value=10.0), Curation("3", "exclude", 0))
    with PoolReader(tmp_path / "p") as reader:
        yield reader


def test_readers_apply_decisions_unless_told_otherwise(pool):
    assert [t.seed for t in pool.trajectories()] == [0, 2, 3]
    assert [t.episode_return for t in pool.trajectories()] == [0.75, 10.25, 0.75]
    assert [pool.trajectory(stored, raw=True) for stored in pool.stored()] == [dialogue(seed) for seed in range(4)]
    assert [t.seed for t in pool.trajectories(Where(excluded=True))] == [1]


def test_sums_follow_decisions(pool):
    assert [stored.total for stored in pool.stored()] == [0.75, 0.75, 10.25, 0.75]
    assert [s.id for s in pool.sessions(Where(min_return=1))] == ["2"]
    assert [s.id for s in pool.sessions(Where(max_return=1, excluded=False))] == ["0", "3"]
    assert [s.id for s in pool.sessions(Where(success=True))] == ["0", "2"]
    assert [s.id for s in pool.sessions(Where(ids=["3", "0", "9"]))] == ["0", "3"]
    assert [(s.steps, s.tokens) for s in pool.stored()] == [(3, 60)] * 4


def test_people_decide_while_the_writer_is_at_work(tmp_path):
    path = tmp_path / "p"
    with PoolWriter(path) as pool:
        for seed in range(30):
            future = pool.add(*session_records(dialogue(seed), str(seed)), Curation(str(seed), "keep"))
            assert curate(path, [Curation(str(seed), "exclude", by="me", why="test")] * 2)
            future.result(60)
    with PoolReader(path) as reader:
        rows = reader.curation()
        assert [number for number, _ in rows] == list(range(1, 91))
        assert sum(row.verdict == "exclude" for _, row in rows) == 60
        assert len(reader.sessions()) == 30
    with pytest.raises(InputError, match="no such pool"):
        curate(tmp_path / "another", [])
    assert not (tmp_path / "another").exists()
