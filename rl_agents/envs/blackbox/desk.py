"""Agents whose requests wait for the one who plays the model: a search, or anybody who plays blackbox as a `TextEnv`.

One HTTP server per process, in a thread with an event loop of its own. An agent is run for every episode. Its requests
and its end are handed over in their order; a request waits until it is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import secrets
import threading
from collections.abc import AsyncGenerator, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rl_agents.gateway.calls import ModelAnswer, ModelCall, Piece, Start
from rl_agents.gateway.dialects import DIALECTS, dialect_of, models_body
from rl_agents.gateway.process_supervisor import Agent, AgentEnd, Given
from rl_agents.web.errors import ApiError
from rl_agents.web.security import digest

MODEL = "policy"
MAX_BODY_BYTES = 32 << 20
#: Seconds in which the server has to be there, and in which a stopped agent has to be gone.
START_S, STOP_S = 30.0, 20.0


@dataclass(eq=False)
class Asked:
    """A request that waits. ``answer`` belongs to the desk's event loop."""

    call: ModelCall
    answer: asyncio.Future[ModelAnswer]


@dataclass(eq=False)
class Run:
    """One agent's run.

    Attributes:
        events: its requests and, last, its end.
        rewards: what it was given by HTTP since anybody looked.
        recent: requests by digest: what a client's retry is answered with.
    """

    session: str
    key: str
    events: queue.SimpleQueue[Asked | AgentEnd] = field(default_factory=queue.SimpleQueue)
    rewards: queue.SimpleQueue[float] = field(default_factory=queue.SimpleQueue)
    recent: dict[str, Asked] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    closed: str = ""

    def ask(self, call: ModelCall, name: str, retry: bool) -> Asked:
        """Return the request; the earlier one where this is its retry.

        Raises:
            ApiError: no request is served any more, or not this kind.
        """
        earlier = self.recent.get(name)
        if earlier is not None and (retry or not earlier.answer.done()):
            return earlier
        if self.closed:
            raise ApiError(403, self.closed, "session_closed")
        if call.count != 1:
            raise ApiError(400, f"n={call.count}: one answer at a time here", "invalid_value", "n")
        asked = self.recent[name] = Asked(call, asyncio.get_running_loop().create_future())
        self.events.put(asked)
        return asked


class Desk:
    """The server, and the runs of this process."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._loop = asyncio.new_event_loop()
        self._url: queue.SimpleQueue[str | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._serve, name="blackbox-desk", daemon=True).start()
        url = self._url.get(timeout=START_S)
        if isinstance(url, BaseException):
            raise url
        self.url = url

    def start(self, agent: Agent, task: Mapping[str, Any], seed: int, timeout_s: float) -> Run:
        """Run an agent; its first event follows."""
        run = Run(f"search-{secrets.token_hex(8)}", secrets.token_urlsafe(24))
        given = Given(run.session, run.key, self.url, task, seed)
        self._do(self._begin(run, agent, given, timeout_s))
        return run

    def answer(self, asked: Asked, answer: ModelAnswer | ApiError) -> None:
        self._loop.call_soon_threadsafe(_settle, asked, answer)

    def stop(self, run: Run) -> None:
        """End an agent that may still be running, and everything that it has started."""
        self._do(self._end(run))

    async def _begin(self, run: Run, agent: Agent, given: Given, timeout_s: float) -> None:
        self._runs[run.session] = run
        run.task = asyncio.create_task(_play(run, agent, given, timeout_s))

    async def _end(self, run: Run) -> None:
        run.closed = "the session is over"
        self._runs.pop(run.session, None)
        if run.task is not None:
            run.task.cancel()
            await asyncio.wait({run.task})
        for asked in run.recent.values():
            _settle(asked, ApiError(403, run.closed, "session_closed"))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())

    async def _listen(self) -> None:
        import uvicorn

        routes = [
            Route("/s/{session}/v1/models", self._models),
            Route("/rl/reward", self._reward, methods=["POST"]),
            Route("/rl/end", self._ended, methods=["POST"]),
            *(Route("/s/{session}" + path, self._request, methods=["POST"]) for path in DIALECTS),
        ]
        app = Starlette(routes=routes, exception_handlers={ApiError: _refusal})
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", lifespan="off", access_log=False)
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext  # type: ignore
        serving = asyncio.create_task(server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.005)
        if serving.done():
            self._url.put(serving.exception() or RuntimeError("the server for agents does not start"))
            return
        self._url.put(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}")
        await serving

    def _run_of(self, request: Request, session: str = "") -> Run:
        """Return the run that a request's key, and path, belong to."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        key = request.headers.get("x-api-key") or (bearer if scheme.lower() == "bearer" else "")
        found = [run for run in self._runs.values() if secrets.compare_digest(run.key.encode(), key.encode())]
        if not found or (session and found[0].session != session):
            raise ApiError(401, "no session here has this key; it is over, or it never was", "invalid_api_key")
        return found[0]

    async def _models(self, request: Request) -> Response:
        self._run_of(request, request.path_params["session"])
        return JSONResponse(models_body([MODEL], 0))

    async def _reward(self, request: Request) -> Response:
        run, data = self._run_of(request), await _body(request)
        value = data.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e30:
            raise ApiError(400, "value: a finite number is needed", "invalid_value", "value")
        run.rewards.put(float(value))
        return JSONResponse({"ok": True})

    async def _ended(self, request: Request) -> Response:
        self._run_of(request).closed = "the agent has ended its session"
        return JSONResponse({"ok": True})

    async def _request(self, request: Request) -> Response:
        run, data = self._run_of(request, request.path_params["session"]), await _body(request)
        path = "/v1" + request.url.path.partition("/v1")[2]
        dialect = DIALECTS[path]
        call: ModelCall = dialect.read(data)
        name = digest(path + json.dumps(data, sort_keys=True))
        asked = run.ask(call, name, request.headers.get("x-stainless-retry-count", "0") != "0")
        if not call.stream:
            return JSONResponse(dialect.whole(call, [await asyncio.shield(asked.answer)]))
        events = dialect.events(call, _pieces(asked))
        return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def _play(run: Run, agent: Agent, given: Given, timeout_s: float) -> None:
    end = AgentEnd(error="it was stopped")
    try:
        end = await agent.run(given, timeout_s)
    except Exception as error:
        end = AgentEnd(error=f"{type(error).__name__}: {error}")
    finally:
        run.closed = run.closed or "the agent has ended"
        run.events.put(end)


def _settle(asked: Asked, answer: ModelAnswer | ApiError) -> None:
    if asked.answer.done():
        return
    if isinstance(answer, ApiError):
        asked.answer.set_exception(answer)
        asked.answer.exception()  # the request may be gone
    else:
        asked.answer.set_result(answer)


async def _pieces(asked: Asked) -> AsyncGenerator[Piece, None]:
    answer = await asyncio.shield(asked.answer)
    yield Start(answer.id, answer.created, answer.label)
    yield answer


async def _body(request: Request) -> dict[str, Any]:
    """Return a request's JSON object.

    Raises:
        ApiError: it is too large, or none.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise ApiError(413, f"the body is larger than {MAX_BODY_BYTES} bytes", "body_too_large")
        parts.append(part)
    try:
        data = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", "invalid_json") from None
    if not isinstance(data, dict):
        raise ApiError(400, "the body is not a JSON object", "invalid_json")
    return data


async def _refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    names = {name.lower(): value for name, value in request.headers.items()}
    body = dialect_of(request.url.path, names).error(error)
    return JSONResponse(body, status_code=error.status, headers=dict(error.headers()))


_desk: list[Desk] = []
_lock = threading.Lock()


def desk() -> Desk:
    with _lock:
        if not _desk:
            _desk.append(Desk())
        return _desk[0]
