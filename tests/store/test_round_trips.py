"""What is written is what is read."""

import json
import math
import sqlite3
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store.experience import dialogue, float32

from rl_agents.data.trajectory import Step, Trajectory
from rl_agents.errors import InputError
from rl_agents.store.packing import as_ids, as_sequence, pack, unpack
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import (
    BatchRow,
    Call,
    Credit,
    Event,
    Exchange,
    Outcome,
    RewardNote,
    Session,
    SessionStart,
    TokenLoss,
    session_records,
)
from rl_agents.store.trajectory_store import PoolWriter

ids = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 300) | st.integers(0, 150_000), max_size=30)
logprobs = st.lists(st.floats(width=32, allow_nan=False), max_size=30)
text = st.text(st.characters(codec=None), max_size=20)  # with halves of surrogate pairs, too
number = st.floats(allow_nan=False)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | number | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
big = st.integers(0, 2**63 - 1)
steps = st.builds(
    Step, ids, ids, logprobs, st.integers(0, 9), st.sampled_from(["stop", "length"]), text, text, text, number,
    st.booleans(), st.just(0), st.none() | st.integers(-1, 5), st.sampled_from([(), ((3, 12), (4, 8))]),
    st.dictionaries(text, number, max_size=2),
)  # fmt: skip
trajectories = st.builds(
    Trajectory, text, big, st.integers(0, 9), big, st.lists(steps, max_size=4), st.booleans(), st.booleans(), text,
    st.booleans(), st.booleans(), st.dictionaries(text, number, max_size=3), st.dictionaries(text, plain, max_size=3),
)  # fmt: skip


@given(ids)
def test_ids_come_back(given_ids):
    packed = pack(as_sequence(given_ids))
    assert as_ids(unpack(packed)) == given_ids
    width = max((max(1, (i.bit_length() + 7) // 8) for i in given_ids), default=0)
    assert len(packed) == (1 + width * len(given_ids) if given_ids else 0)


@pytest.mark.parametrize("bad", [[-1], [2**32], [1.5], ["a"], [None]])
def test_what_is_no_id_is_refused(bad):
    with pytest.raises(InputError, match="token ids"):
        as_sequence(bad)


@pytest.mark.parametrize("torn", [b"\x03\x01", b"\x05\x01\x02\x03\x04\x05", b"\x00\x01"])
def test_torn_ids_are_noticed(torn):
    with pytest.raises(InputError, match="damaged"):
        unpack(torn)


@settings(deadline=None, max_examples=25)
@given(st.lists(trajectories, max_size=4))
def test_trajectories_come_back(written):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.sqlite"
        with PoolWriter(path) as pool:
            for place, trajectory in enumerate(written):
                pool.add(*session_records(trajectory, f"s{place}", iteration=place, env="any")).result(60)
        with PoolReader(path) as reader:
            assert list(reader.trajectories()) == written
            assert [reader.trajectory(stored) for stored in reader.stored()] == written
    assert [Trajectory.from_json(json.loads(json.dumps(one.to_json()))) for one in written] == written


@st.composite
def families(draw) -> list[Call]:
    """Calls whose prompts extend an earlier one, a part of it, or nothing."""
    calls: list[Call] = []
    for place in range(draw(st.integers(1, 8))):
        parent = draw(st.sampled_from([None, *calls]))
        before = parent.prompt_ids + parent.response_ids if parent else []
        before = before[: draw(st.integers(0, len(before)))] if draw(st.booleans()) else before
        response = draw(ids)
        calls.append(
            Call(place + 1, parent.id if parent else draw(st.sampled_from([0, 0, 99])), before + draw(ids), response,
                 [float32(-0.1)] * len(response), place, "stop")
        )  # fmt: skip
    return calls


@settings(deadline=None, max_examples=25)
@given(families(), st.sampled_from([0, 600, 10_000]), st.randoms())
def test_calls_come_back_from_memory_and_from_the_file(calls, recent, rng):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.sqlite"
        with PoolWriter(path) as pool:
            pool._calls._limit = recent  # from the file, or from memory
            for call in calls:
                pool.add(call)
        with PoolReader(path) as reader:
            assert list(reader.calls()) == calls
        with PoolReader(path) as reader:
            reader._calls._limit = recent
            for call in rng.sample(calls, len(calls)):
                assert list(reader.calls([call.id])) == [call]


@settings(deadline=None, max_examples=25)
@given(families())
def test_prompts_may_come_without_what_their_parent_has(calls):
    """A call that leaves out its parent's prompt and response is read like one that is sent whole."""
    known: dict[int, list[int]] = {0: []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pool.sqlite"
        with PoolWriter(path) as pool:
            for call in calls:
                said = known.get(call.parent, [])
                shared = len(said) if call.prompt_ids[: len(said)] == said else 0
                pool.add(replace(call, prompt_ids=call.prompt_ids[shared:], shared=shared)).result(60)
                known[call.id] = call.prompt_ids + call.response_ids
        with PoolReader(path) as reader:
            assert list(reader.calls()) == calls


@pytest.mark.parametrize(("parent", "shared"), [(7, 2), (1, 1), (1, 3)])
def test_what_a_call_leaves_out_must_be_there(tmp_path, parent, shared):
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(Call(1, 0, [1], [2], [-0.5], 0, "stop"))
        with pytest.raises(InputError, match="which are not here"):
            pool.add(Call(2, parent, [3], [4], [-0.5], 0, "stop", shared=shared)).result(60)


def test_nothing_is_stored_twice(tmp_path):
    """A dialogue costs its own tokens once, and the first prompt of a group's members is stored once."""
    path = tmp_path / "pool.sqlite"
    members = [dialogue(0, turns=20), dialogue(0, turns=20)]
    for step in members[1].steps:
        step.call += 1
    with PoolWriter(path) as pool:
        for member, trajectory in enumerate(members):
            pool.add(*session_records(trajectory, f"m{member}"))
    with sqlite3.connect(path) as connection:
        rest, response, shared = connection.execute(
            "SELECT sum(length(rest)), sum(length(response)), count(*) FROM calls WHERE prompt IS NULL"
        ).fetchone()
        assert (rest, response, shared) == (38 * (1 + 4 * 1), 38 * (1 + 3 * 20), 38)
        assert connection.execute("SELECT count(*) FROM prompts").fetchone() == (1,)


def test_every_kind_of_record_comes_back(tmp_path):
    records = [
        Session(
            "s", "gateway", 3, 4, 1, 2**63 - 1, "env", "täsk", True, False, "max_calls", False, True, {"a": 0.1}, {}
        ),
        Outcome("s", 0, 7, "sees", "sees", "does", 0.1, True),
        BatchRow(3, 0, 5, "s"),
        Credit(3, 0, "s", 0, 0.3),
        Credit(3, 0, "s", 1, -0.3, 1.5),
        Exchange(
            7, "s", "started", "ab", 1, "responses", {"messages": [{"role": "user", "content": "\ud800"}]}, {}, {}
        ),
        Exchange(7, "s", "finished", answer={"text": "hé"}, overridden={"temperature": 0.2}),
        SessionStart("s", 4, 1, 99, "täsk", "cd", {"question": None}),
        RewardNote("s", 1.0, 7, "good"),
        Event("run", facts={"seed": 1}),
    ]
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(*records).result(60)
    with PoolReader(tmp_path / "p") as reader:
        read = [
            *reader.sessions(), *reader.outcomes("s"), *reader.batches(), *reader.credit("s"),
            *reader.exchanges("s"), *reader.openings(),
            *reader.reward_notes("s"), *reader.events(),
        ]  # fmt: skip
        assert read == records
        assert reader.exchanges("another") == []


def test_numbers_that_sql_has_not(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(Outcome("s", 0, 1, "", "", "", math.nan, True), Outcome("s", 1, 2, "", "", "", -math.inf, True))
    with PoolReader(tmp_path / "p") as reader:
        rewards = [outcome.reward for outcome in reader.outcomes("s")]
    assert math.isnan(rewards[0]) and rewards[1] == -math.inf


def test_a_missing_call_is_named(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(*session_records(dialogue(0), "s"))
    with sqlite3.connect(tmp_path / "p") as connection:
        connection.execute("DELETE FROM calls WHERE number = 3")
    with PoolReader(tmp_path / "p") as reader, pytest.raises(InputError, match="missing"):
        list(reader.trajectories())


def test_calls_of_later_weights(tmp_path):
    with PoolWriter(tmp_path / "p") as pool:
        pool.add(*session_records(dialogue(3, turns=4), "s"))
    with PoolReader(tmp_path / "p") as reader:
        assert [call.policy_version for call in reader.calls(None, "policy_version >= ?", 1)] == [1, 1]
        assert list(reader.calls([5, 6])) == []


def test_losses_by_token_are_read_back(tmp_path: Path) -> None:
    path, losses = tmp_path / "pool.sqlite", [float32(0.1), -2.5, 0.0]
    with PoolWriter(path) as writer:
        writer.add(TokenLoss(3, 0, "s", 1, "rl", losses)).result()
    with PoolReader(path) as reader:
        assert reader.token_losses("s", 1) == [TokenLoss(3, 0, "s", 1, "rl", losses)] and not reader.token_losses(
            "s", 0
        )
