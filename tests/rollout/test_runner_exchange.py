"""Batches on a runner's event loop: what is done comes back, the rest goes on with the next exchange."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rl_agents.rollout.request_queue import JobBatch, RequestQueue, gathered

stopped: list[str] = []


async def work(batch: JobBatch) -> Any:
    try:
        for seconds in batch.jobs:
            await asyncio.sleep(seconds)
        if batch.method == "break":
            raise ValueError(batch.number)
        return batch.number * 10
    except asyncio.CancelledError:
        stopped.append(batch.method)
        raise


@pytest.fixture
def bench() -> Iterator[RequestQueue]:
    stopped.clear()
    with asyncio.Runner() as loop:
        yield RequestQueue(loop, work)


def batches(**seconds: float) -> list[JobBatch]:
    return [JobBatch(number, name, [length]) for number, (name, length) in enumerate(seconds.items())]


def test_what_is_done_comes_at_once_and_the_rest_goes_on_until_the_time_is_over(bench: RequestQueue) -> None:
    assert bench.exchange(batches(slow=0.05, quick=0.0)) == {0: 0, 1: 10} and not bench.in_progress()
    assert bench.exchange() == {}
    assert bench.exchange(batches(slow=1.0, quick=0.0), 60.0, 1) == {1: 10}
    assert list(bench.in_progress()) == [0]
    assert bench.exchange([JobBatch(7, "another", [0.0])], 60.0, 1) == {7: 70}
    assert bench.exchange([], 60.0, 1) == {0: 0}
    assert bench.exchange(batches(slow=60.0), 0.05) == {}
    assert bench.exchange([], 0.01, drop=[0]) == {} and stopped == ["slow"] and not bench.in_progress()


def test_an_error_of_ours_ends_all_batches(bench: RequestQueue) -> None:
    with pytest.raises(ValueError, match="1"):
        bench.exchange([JobBatch(0, "slow", [60.0]), JobBatch(1, "break", [0.0])], 5.0, 1)
    assert bench.exchange([JobBatch(2, "quick", [0.0])]) == {2: 20} and stopped == ["slow"]


def test_jobs_that_are_done_are_counted_by_batch() -> None:
    gates = [asyncio.Event() for _ in range(3)]

    async def play(batch: JobBatch) -> list[Any]:
        return await gathered([gates[job].wait() for job in batch.jobs])

    with asyncio.Runner() as loop:
        bench = RequestQueue(loop, play)
        gates[0].set()
        assert bench.exchange([JobBatch(3, "sample", [0, 1]), JobBatch(4, "sample", [2])], 0.3) == {}
        assert bench.in_progress() == {3: 1, 4: 0}
        gates[1].set()
        assert bench.exchange([], 60.0, 1) == {3: [True, True]} and bench.in_progress() == {4: 0}
        bench.stop()
