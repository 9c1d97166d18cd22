"""Calls of model servers against real ones on this machine: slow, overloaded, dying, rude."""

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from loopback import Loopback, Reply, Request, loopback, together

from rl_agents.background import begin, wait
from rl_agents.web.model_server import ModelServer, ServerError

pytestmark = pytest.mark.servers


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def server_at(server: Loopback | str, **keys: Any) -> ModelServer:
    limits = {"key_env": "", "timeout_s": 30.0, "retries": 2, "concurrency": 16, **keys}
    return ModelServer.connect(server if isinstance(server, str) else server.url, **limits)


def ask(server: ModelServer, **body: Any) -> Any:
    return wait(server.post("/x", body))


def ask_all(server: ModelServer, count: int) -> list[Any]:
    """What came of ``count`` calls at once: replies or errors."""
    return wait(_gathered([server.post("/x", {"n": n}) for n in range(count)]))


async def _gathered(works: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    return await asyncio.gather(*works, return_exceptions=True)


def after(seconds: float, reply: Reply | None = None) -> Any:
    async def answer(request: Request) -> Reply:
        await asyncio.sleep(seconds)
        return reply or Reply()

    return answer


def test_many_calls_of_a_slow_server_are_bounded_and_all_answered() -> None:
    async def echo(request: Request) -> Reply:
        await asyncio.sleep(0.2)
        return Reply(str(request.body["n"]).encode())

    with loopback(together(50, echo)) as server:
        assert ask_all(server_at(server, concurrency=100), 400) == list(range(400)), "each its own"
    assert 50 <= server.most_under_way <= 100 and len(server.requests) == 400
    assert server.connections <= 110, "connections are used again"


def test_the_bound_holds_for_all_who_ask_from_wherever() -> None:
    with loopback(together(3, after(0.1))) as server:
        asked = server_at(server, concurrency=3)
        threads = [threading.Thread(target=lambda: asyncio.run(asked.post("/x", {}))) for _ in range(5)]
        threads += [threading.Thread(target=lambda: ask(server_at(server, concurrency=3))) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert server.most_under_way == 3 and len(server.requests) == 10


@pytest.mark.parametrize("name", ["Retry-After", "retry-after-ms"])
def test_a_server_that_says_wait_is_asked_again_then(name: str) -> None:
    pause = {"Retry-After": "1", "retry-after-ms": "1000"}[name]

    async def answer(request: Request) -> Reply:
        return Reply(b"slow down", 429, {name: pause}) if request.number == 0 else Reply()

    with loopback(answer) as server:
        assert ask(server_at(server, retries=1)) == {"ok": True}
    first, second = (request.at for request in server.requests)
    assert second - first >= 0.99


def test_a_pause_that_is_too_long_fails_at_once() -> None:
    with loopback(after(0.0, Reply(b"quota used up", 429, {"Retry-After": "3600"}))) as server:
        found = ask_all(server_at(server, concurrency=2), 20)
        assert all(str(error) == "HTTP 429: quota used up" for error in found) and len(server.requests) == 20


def test_a_storm_that_does_not_end_ends_every_call() -> None:
    storm = after(0.0, Reply(b"overloaded", 503, {"retry-after-ms": "10"}))
    with loopback(storm) as server:
        found = ask_all(server_at(server, retries=1), 20)
    assert all(str(error) == "HTTP 503: overloaded" for error in found) and len(server.requests) == 40


def test_a_server_that_dies_in_the_middle() -> None:
    async def answer(request: Request) -> Reply:
        return Reply(b'{"ok": true, "more": 1}', cut=5 if request.number % 2 == 0 else None)

    with loopback(answer) as server:
        assert ask(server_at(server)) == {"ok": True, "more": 1} and len(server.requests) == 2
        with pytest.raises(ServerError, match=r"RemoteProtocolError: .*\(1 attempts\)"):
            ask(server_at(server, retries=0))
        server.answer = after(30.0)
        works = [begin(server_at(server, retries=1).post("/x", {"n": n})) for n in range(8)]
        while len(server.requests) < 3 + 8:
            time.sleep(0.01)
    for work in works:
        with pytest.raises(ServerError, match=r"ConnectError: .*\(2 attempts\)"):
            work.result(60)


def test_a_byte_now_and_then_is_no_answer() -> None:
    drips = after(0.0, Reply(b"1" * 50, drip_s=0.1))
    with loopback(drips) as server, pytest.raises(ServerError, match=r"no answer within 0\.5 s"):
        ask(server_at(server, timeout_s=0.5, retries=0))


def test_replies_that_are_no_json() -> None:
    with loopback(after(0.0)) as server:
        asked = server_at(server)
        for body in (b"<html>", b"[" * 900, b""):
            server.answer = after(0.0, Reply(body))
            with pytest.raises(ServerError, match="no JSON"):
                ask(asked)
        assert len(server.requests) == 3, "no second try for what would be the same"


def test_a_cancelled_call_gives_its_place_back() -> None:
    with loopback(after(30.0)) as server:
        asked = server_at(server, concurrency=2)
        works = [begin(asked.post("/x", {})) for _ in range(40)]
        while len(server.requests) < 2:
            time.sleep(0.01)
        for work in reversed(works):  # those that wait first: a place that is given back goes to the next
            work.cancel()
        server.answer = after(0.0)
        assert ask(asked, n=1) == {"ok": True}
        assert len(server.requests) == 3, "those that waited were never sent"


def test_a_cancelled_caller_on_another_loop_ends_its_call() -> None:
    async def impatient(server: ModelServer) -> None:
        async with asyncio.timeout(0.3):
            await server.post("/x", {})

    with loopback(after(30.0)) as server:
        asked = server_at(server, concurrency=1)
        with pytest.raises(TimeoutError):
            asyncio.run(impatient(asked))
        server.answer = after(0.0)
        assert ask(asked) == {"ok": True}


def test_connections_outlive_the_loops_that_ask() -> None:
    with loopback(after(0.0)) as server:
        for _ in range(5):
            asyncio.run(server_at(server).post("/x", {}))
        assert server.connections == 1


@pytest.mark.parametrize("url", ["ftp://x", "http://[", "no address"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ServerError):
        ask(server_at(url, retries=0))
