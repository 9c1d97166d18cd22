"""The order of calls, and what is cut into buckets; no engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agents.inference.weight_sync.buckets import cut, rank_offset, world_size
from rl_agents.inference.weight_sync.states import Machine, State, TransferError


def after(*calls: str, state: State = State.CLOSED) -> Machine:
    machine = Machine(state)
    for call in calls:
        machine.done(call)
    return machine


@pytest.mark.parametrize(
    ("before", "call", "why"),
    [
        ([], "start", "not initialized"),
        ([], "update", "not initialized"),
        (["init"], "update", "no update was started"),
        (["init"], "finish", "nothing was sent"),
        (["init", "start"], "start", "under way already"),
        (["init", "start"], "finish", "nothing was sent"),
        (["init", "start"], "init", "finish it first"),
        (["init", "start", "update"], "start", "under way already"),
        (["init", "start", "update"], "close", "finish it first"),
        (["init", "start", "update", "finish"], "finish", "nothing was sent"),
    ],
)
def test_calls_out_of_order_are_refused(before: list[str], call: str, why: str) -> None:
    machine = after(*before)
    state = machine.state
    with pytest.raises(TransferError, match=f"{call} while the weight transfer is {state}: .*{why}"):
        machine.done(call)
    assert machine.state is state


def test_the_order_itself() -> None:
    machine = after("init", "start", "update", "update", "finish", "start", "update", "finish", "close")
    assert machine.state is State.CLOSED


@pytest.mark.parametrize("call", ["start", "update", "finish"])
def test_a_failure_breaks_and_a_whole_update_mends(call: str) -> None:
    machine = after("init", *["start", "update"][: ["start", "update", "finish"].index(call)])
    machine.failed(call)
    assert machine.state is State.BROKEN
    with pytest.raises(TransferError):
        machine.check("update")
    for name in ("init", "start", "update", "finish"):
        machine.done(name)
    assert machine.state is State.READY


def entries(sizes: list[int]) -> tuple[list[tuple[str, str, list[int], int]], int]:
    result, at = [], 0
    for number, size in enumerate(sizes):
        result.append((f"p{number}", "uint8", [size], at))
        at += -(-size // 64) * 64
    return result, at


@pytest.mark.parametrize(
    ("sizes", "bucket", "expected"),
    [
        ([64, 64, 64, 64], 128, [128, 128]),  # full to the brim: no empty one at the end
        ([64, 64, 64], 128, [128, 64]),
        ([64, 640, 64], 128, [64, 640, 64]),  # larger than a bucket
        ([64, 0, 0], 64, [64]),  # nothing left to send: no bucket of its own
        ([0, 0], 64, [0]),
        ([0, 1], 1, [64]),  # nothing to send before it, either
        ([], 64, []),
        ([10, 10], 1, [64, 64]),
    ],
)
def test_edges_of_buckets(sizes: list[int], bucket: int, expected: list[int]) -> None:
    packed, total = entries(sizes)
    assert [b.nbytes for b in cut(packed, total, bucket)] == expected


@given(st.lists(st.integers(0, 300)), st.integers(1, 500))
def test_buckets_hold_everything_once_and_in_order(sizes: list[int], bucket: int) -> None:
    packed, total = entries(sizes)
    buckets = cut(packed, total, bucket)
    again = [(n, d, s, at + b.offset) for b in buckets for n, d, s, at in b.entries]
    assert again == packed
    assert sum(b.nbytes for b in buckets) == total
    assert all(b.nbytes <= bucket or sum(s != [0] for _, _, s, _ in b.entries) == 1 for b in buckets)
    assert all(b.nbytes or len(buckets) == 1 for b in buckets)


@pytest.mark.parametrize("tensor_parallel", [1, 2, 8])
@pytest.mark.parametrize("engines", [1, 2, 5])
def test_no_two_workers_have_one_rank(engines: int, tensor_parallel: int) -> None:
    ranks = [rank_offset(e, tensor_parallel) + t for e in range(engines) for t in range(tensor_parallel)]
    assert sorted([0, *ranks]) == list(range(world_size(engines, tensor_parallel)))
