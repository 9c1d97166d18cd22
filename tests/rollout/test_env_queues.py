"""Calls of environments that stand in line for a place at a judge or a tool: that time is not the server's."""

import asyncio
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai  # noqa: F401  (a first import within a call takes longer than a step may)
import pytest
from loopback import Reply, Request, loopback
from rollout.playing import play
from rollout.waiting import Waiting

from rl_agents import background
from rl_agents.background import SharedAnswers
from rl_agents.queues import CallQueue, QueueWait, queued
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.rollout.env_pool import EnvPool
from rl_agents.rollout.env_worker import EnvGuard, TaskWatch
from rl_agents.rollout.turns import Limits
from rl_agents.tools.mcp_client import McpClient
from rl_agents.tools.mcp_servers import ServerSpec
from rl_agents.web.model_server import ModelServer

LIMITS = Limits(max_turns=1, max_response_tokens=6, max_model_len=600, env_timeout_s=1.0)
MCP_SERVER = str(Path(__file__).parents[1] / "tools" / "mcp_server.py")
REMEMBERED: SharedAnswers[Any] = SharedAnswers(64)


class Judged(Waiting):
    """Asks a judge in every step, as a coroutine."""

    longest_s = 0.0
    server: ModelServer

    async def asked(self) -> Any:
        return await self.server.post("/judge", {"task": self.task})

    async def step(self, action: str) -> Any:  # type: ignore[override]
        await self.asked()
        return self.stepped(action)


class PlainlyJudged(Judged):
    """The same as plain code."""

    def step(self, action: str) -> Any:  # type: ignore[override]
        background.wait(self.asked())
        return self.stepped(action)


class AloneJudged(PlainlyJudged):
    """Plain code in the runner's loop, whose question stands behind others."""

    others: Any = None

    def step(self, action: str) -> Any:  # type: ignore[override]
        self.others = [background.begin(self.server.post("/judge", {"task": "of others"})) for _ in range(5)]
        time.sleep(0.05)
        return super().step(action)


class SharedJudged(Judged):
    """The judge remembers; two episodes put each question."""

    async def asked(self) -> Any:
        question = int(self.task.removeprefix("task-")) // 2
        return await REMEMBERED.get((self.server.url, question), super().asked)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def pool_of(kind: type[Judged], url: str, blocking: Any, **keys: Any) -> EnvPool:
    limits = {"key_env": "", "timeout_s": 20.0, "retries": 0, "concurrency": 1, **keys}
    own = type(kind.__name__, (kind,), {"server": ModelServer.connect(url, **limits)})
    return EnvPool(own, blocking)


@pytest.mark.servers
@pytest.mark.parametrize(
    ("kind", "blocking", "episodes"),
    [(Judged, "thread", 5), (PlainlyJudged, "thread", 5), (AloneJudged, "inline", 1), (SharedJudged, "inline", 10)],
)  # fmt: skip
def test_who_waits_for_a_turn_at_the_judge_has_not_failed(kind: type[Judged], blocking: str, episodes: int) -> None:
    async def slowly(request: Request) -> Reply:
        await asyncio.sleep(0.5)
        return Reply()

    with loopback(slowly) as server:
        pool, begun = pool_of(kind, server.url, blocking), time.monotonic()
        ends = {t.end_cause for t in play(pool, range(episodes), limits=replace(LIMITS, env_timeout_s=2.0))}
        took = time.monotonic() - begun
        asyncio.run(pool.close())
    assert ends == {"max_turns"}
    assert took > 2.0, "one after the other, which is longer than a step may take"


@pytest.mark.servers
@pytest.mark.parametrize("blocking", ["inline", "thread"])
def test_a_judge_that_never_answers_is_left_when_a_steps_own_time_is_over(blocking: str) -> None:
    async def never(request: Request) -> Reply:
        if request.body["task"] != "task-0":
            return Reply()
        await asyncio.sleep(30)
        raise AssertionError

    with loopback(never) as server:
        pool = pool_of(Judged, server.url, blocking)
        ends = {t.task_id: t.end_cause for t in play(pool, range(4), limits=LIMITS)}
        asyncio.run(pool.close())
    assert ends.pop("task-0") == "env_timeout: step: no answer within 1 s"
    assert set(ends.values()) == {"max_turns"}, "they had their turn when it was left"


@pytest.mark.servers
def test_who_waits_for_a_turn_at_a_tool_has_not_failed() -> None:
    client = McpClient([ServerSpec("tools", sys.executable, (MCP_SERVER,))], concurrency=1)
    asyncio.run(client.opened())
    (wait,) = [tool for tool in client.tools if tool.name == "wait"]

    async def step() -> str:
        return await client.ask(wait, {"seconds": 0.5})

    async def asked() -> list[Any]:
        guards = [EnvGuard(f"task-{number}", 1, 2.0) for number in range(6)]
        return await asyncio.gather(*(guard.call(step) for guard in guards), return_exceptions=True)

    try:
        assert asyncio.run(asked()) == ["at last"] * 6
    finally:
        client.close()


@pytest.mark.parametrize("place", ["coroutine", "plain"])
def test_a_queue_that_never_moves_ends_with_what_it_is(place: str) -> None:
    line, watch = CallQueue("the judge, asked by 1 at once,"), TaskWatch()

    async def waits() -> None:
        with queued(line, 0.6):
            await asyncio.sleep(30)

    def waits_plainly() -> None:
        background.wait(waits())

    call: Any = waits if place == "coroutine" else waits_plainly
    begun = time.monotonic()
    for _ in range(4):  # the task is not to blame, and is not given up
        with pytest.raises(EnvFailure, match=r"env_timeout: waits\w*: still queued: the judge, asked by 1 "):
            asyncio.run(EnvGuard("t", 1, 0.5, watch).call(call))
    assert time.monotonic() - begun >= 2.4


def test_a_queue_that_moves_may_take_long_and_is_counted_once() -> None:
    line = CallQueue("the judge")

    async def waits() -> str:
        with queued(line, 30.0):
            for _ in range(30):
                await asyncio.sleep(0.05)
                line.moves()
        return "served"

    assert asyncio.run(EnvGuard("t", 1, 1.0).call(waits)) == "served"
    standing, line, begun = QueueWait(), CallQueue("x"), time.monotonic()

    def stand(seconds: float) -> None:
        with standing.used(), queued(line, 1.0):
            time.sleep(seconds)

    threads = [threading.Thread(target=stand, args=(seconds,)) for seconds in (0.1, 0.2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0.2 <= standing.waited <= time.monotonic() - begun
    before = standing.waited
    time.sleep(0.05)
    assert standing.waited == before and not standing.queued
