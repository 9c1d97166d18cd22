"""Places and threads of environments after failures and cancellations."""

import asyncio
import re
import threading
import time
from typing import Any

import pytest
from rollout.playing import gone, play, pool_of
from rollout.scripted import Countdown

from rl_agents.envs import coroutines
from rl_agents.rollout import env_worker
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import EnvGuard, ThreadHost


def test_those_who_wait_and_those_who_play_are_cancelled_together() -> None:
    pool = EnvPool(Countdown, concurrency=1)

    async def episode() -> None:
        env = await pool.take()
        try:
            await asyncio.sleep(60)
        finally:
            await pool.discard(env)

    async def work() -> list[Any]:
        episodes = [asyncio.create_task(episode()) for _ in range(4)]
        await asyncio.sleep(0.01)
        for each in episodes:
            each.cancel()
        ends = await asyncio.gather(*episodes, return_exceptions=True)
        pool.give_back(await asyncio.wait_for(pool.take(), 60.0))  # all places are free again
        return ends

    assert {type(end) for end in asyncio.run(work())} == {asyncio.CancelledError}


def test_a_coroutine_that_waits_for_ever_in_a_thread_leaves_it() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    async def work() -> ThreadHost:
        host = ThreadHost()
        await host.make(Countdown, 20.0)
        guard = EnvGuard("t", 1, 0.05, host=host)
        with pytest.raises(EnvFailure, match="env_timeout: never: no answer within"):
            await guard.call(never)
        with pytest.raises(EnvFailure, match="left in the middle of an earlier call"):
            await guard.call(never)
        return host

    host = asyncio.run(work())
    assert gone(lambda: not host.alive)


def test_constructors_that_fail_are_no_hanging_threads_and_a_hanging_close_is_one(monkeypatch) -> None:
    monkeypatch.setattr(env_worker, "CLOSE_TIMEOUT_S", 0.02)
    release = threading.Event()

    def broken() -> Any:
        raise KeyError("no such thing")

    class Clings(Countdown):
        def close(self) -> None:
            release.wait(5.0)

    async def work() -> None:
        pool = EnvPool(broken, "thread")
        with pytest.raises(EnvFailure):
            await pool.take()
        assert not pool._stuck
        pool = EnvPool(Clings, "thread")
        await pool.discard(await pool.take())
        assert len(pool._stuck) == 1
        release.set()

    asyncio.run(work())


def test_a_loop_that_stood_still_costs_no_time(monkeypatch) -> None:
    monkeypatch.setattr(coroutines, "LATE_S", 0.05)

    async def three_waits() -> str:
        for _ in range(3):
            await asyncio.sleep(0.02)
        return "answered"

    async def begun() -> asyncio.Task[Any]:
        task = asyncio.create_task(EnvGuard("t", 1, 0.2).call(three_waits))
        await asyncio.sleep(0.01)
        return task

    async def ended(task: asyncio.Task[Any]) -> Any:
        return await task

    with asyncio.Runner() as runner:
        task = runner.run(begun())
        time.sleep(0.4)  # as between two exchanges
        assert runner.run(ended(task)) == "answered"


@pytest.mark.parametrize("blocking", ["inline", "thread"])
def test_what_is_never_made_ends_its_episodes_and_is_not_tried_for_each(blocking, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("NOTED", str(tmp_path / "begun"))
    pool = pool_of("NeverMade", blocking, env_start_timeout_s=1.0, env_concurrency=2)
    begun = time.monotonic()
    ends = {(re.sub(r":\d+", "", t.end_cause), t.failed) for t in play(pool, range(12))}
    assert ends == {("env_timeout: start: no answer within 1 s (waiting.py) (env_start_timeout_s)", True)}
    assert time.monotonic() - begun < 60 and 1 <= (tmp_path / "begun").read_text().count("begun") <= 2
    asyncio.run(pool.close())
    assert gone(lambda: not any(host.alive for host in pool._stuck))
