"""The background event loop: blocking and awaiting callers, cancellation, shared answers."""

import asyncio
import contextlib
import os
import threading
import time

import pytest

from rl_agents.background import SharedAnswers, at_once, begin, elsewhere, settled, wait


async def slowly(value: int, seconds: float = 0.05) -> int:
    await asyncio.sleep(seconds)
    return value


def test_plain_code_waits_and_coroutines_await() -> None:
    assert wait(slowly(3)) == 3 and settled(slowly(4)) == 4 and settled(5) == 5
    assert asyncio.run(elsewhere(slowly(6))) == 6

    async def within_a_loop() -> int:
        return wait(slowly(7))  # blocks this loop, and not the one that works

    assert asyncio.run(within_a_loop()) == 7


def test_waiting_in_the_background_itself_is_refused() -> None:
    async def nested() -> int:
        return wait(slowly(1))

    with pytest.raises(RuntimeError, match="would never return"):
        wait(nested())


def test_what_waits_for_nothing_is_run_at_once_and_what_waits_is_not() -> None:
    async def plain() -> int:
        return 3

    assert at_once(plain()) == 3
    with pytest.raises(RuntimeError, match="waits for something"):
        at_once(_yields())


async def _yields() -> None:
    await asyncio.sleep(0)


def test_cancelling_reaches_the_work() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def work() -> None:
        try:
            begun.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def impatient() -> None:
        waiting = asyncio.create_task(elsewhere(work()))
        await asyncio.to_thread(begun.wait)
        waiting.cancel()
        await waiting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(impatient())
    assert ended.wait(60)


def test_many_who_ask_the_same_ask_once_and_failures_are_not_kept() -> None:
    asked: list[str] = []

    async def answer(fails: bool) -> int:
        asked.append("x")
        await asyncio.sleep(0.05)
        if fails:
            raise ValueError("no")
        return 8

    async def all_at_once(known: SharedAnswers[int], fails: bool) -> list[object]:
        works = [known.get("key", lambda: answer(fails)) for _ in range(5)]
        return list(await asyncio.gather(*works, return_exceptions=True))

    known: SharedAnswers[int] = SharedAnswers(2)
    assert [str(error) for error in asyncio.run(all_at_once(known, True))] == ["no"] * 5 and len(asked) == 1
    assert asyncio.run(all_at_once(known, False)) == [8] * 5 and len(asked) == 2
    assert asyncio.run(all_at_once(known, True)) == [8] * 5 and len(asked) == 2
    for key in "ab":
        wait(known.get(key, lambda: slowly(1)))
    assert asyncio.run(all_at_once(known, False)) == [8] * 5 and len(asked) == 3, "the oldest made room"


def test_who_stops_waiting_does_not_take_the_answer_from_the_others() -> None:
    async def two(known: SharedAnswers[int]) -> int:
        first = asyncio.ensure_future(known.get("key", lambda: slowly(9, 0.2)))
        second = asyncio.ensure_future(known.get("key", lambda: slowly(0)))
        await asyncio.sleep(0.05)
        first.cancel()
        return await second

    assert asyncio.run(two(SharedAnswers(10))) == 9


def test_a_fork_gets_a_loop_of_its_own() -> None:
    wait(slowly(1))
    child = os.fork()
    if not child:
        os._exit(wait(slowly(7)))
    begun, done, status = time.monotonic(), 0, 0
    while not done and time.monotonic() - begun < 60:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    assert done and os.waitstatus_to_exitcode(status) == 7
    assert begin(slowly(2)).result(60) == 2


def test_a_failure_that_nobody_waited_for_is_not_kept() -> None:
    remembered, fail = SharedAnswers[int](4), threading.Event()

    async def fails() -> int:
        await asyncio.to_thread(fail.wait)
        raise ValueError("broken")

    async def leaves_early() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(remembered.get("key", fails), 0.005)
        fail.set()
        while True:
            with contextlib.suppress(ValueError):  # asked before it has failed
                return await remembered.get("key", lambda: slowly(5, 0.0))

    assert asyncio.run(leaves_early()) == 5
