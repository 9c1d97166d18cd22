"""The gateway over HTTP: model calls in three dialects, and ``/rl`` for sessions and rewards.

A session is named by its key (``Authorization: Bearer`` or ``x-api-key``), by the path (``/s/SESSION/v1/...``), or by
both, which must agree then. By the path alone it is served to its own machine only. ``/rl``: sessions are opened with
the admin key; rewards and ends take the session's own key or the admin key.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from pydantic import ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from rl_agents.gateway.answers import call_of
from rl_agents.gateway.calls import ModelAnswer, ModelCall, Sent
from rl_agents.gateway.dialects import (
    DIALECTS,
    IgnoredLog,
    event_stream,
    handlers,
    ignored_header,
    messages,
    model_body,
    models_body,
    primed,
    written,
)
from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.trace import SessionTrace
from rl_agents.store.records import Opening
from rl_agents.tools.strict_json import canonical
from rl_agents.web.bodies import Body, json_object, read_body
from rl_agents.web.errors import ApiError, bad_request
from rl_agents.web.listening import listening
from rl_agents.web.security import Guard, Keys, digest, is_loopback

#: Told of a session that its agent has ended.
OnEnd = Callable[[Opening, SessionTrace], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Service:
    """What all routes need.

    Attributes:
        admin: SHA-256 of the key that opens sessions; empty: none are opened over HTTP.
        on_end: gets sessions that were ended over HTTP; None: they only take no further calls, and their opener
            closes them.
        local: only this machine is served.
    """

    gateway: Gateway
    admin: str
    on_end: OnEnd | None
    local: bool

    def session(self, request: Request) -> str:
        """Return the session that a request names.

        Raises:
            ApiError: 401 without a right key, 403 where key and path disagree.
        """
        key, path = key_of(request), request.path_params.get("session", "")
        if not key:
            if path and self.local:
                return str(path)
            raise ApiError(401, "a session's key is required: Authorization: Bearer KEY", "invalid_api_key")
        found = self.gateway.session_of(key)
        if not found:
            raise ApiError(401, "this is no key of a session", "invalid_api_key")
        if path and path != found:
            raise ApiError(403, f"this key is not of the session {path!r}", "session_mismatch")
        return found

    def is_admin(self, request: Request) -> bool:
        return bool(self.admin) and hmac.compare_digest(digest(key_of(request)), self.admin)


def key_of(request: Request) -> str:
    """Return the key that a request brings; empty: none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "").strip()


async def body_of(request: Request) -> dict[str, Any]:
    """Read a JSON object; see `json_object`."""
    return json_object(await request.body())


class SessionBody(Body):
    """``POST /rl/sessions``; without ``session`` it gets a random name."""

    session: str = Field("", max_length=200, pattern=r"^[A-Za-z0-9_.-]*$")
    task_id: str = ""
    group_id: int = Field(0, ge=0, lt=2**63)
    member: int = Field(0, ge=0, lt=2**63)
    seed: int = Field(0, ge=0, lt=2**63)
    task: dict[str, Any] = Field({})


class NamedBody(Body):
    model_config = ConfigDict(extra="ignore", strict=True)
    session: str = ""


class RewardBody(NamedBody):
    """``POST /rl/reward``; ``call``: the id of the answer that it is for, or the call's number."""

    value: float
    why: str = ""
    call: str | int | None = None


class EndBody(NamedBody):
    reason: str = ""


def operation_routes(service: Service) -> list[Route]:
    """Return the routes below ``/rl``."""

    async def sessions(request: Request) -> Response:
        if not service.is_admin(request):
            status = 401 if service.admin else 403
            raise ApiError(status, "opening a session needs the gateway's admin key", "admin_key_needed")
        body = read_body(SessionBody, await body_of(request))
        session = body.session or secrets.token_hex(8)
        opening = Opening(session, body.group_id, body.member, body.seed, body.task_id, "", body.task)
        key = service.gateway.open(opening)
        await service.gateway.written()
        return JSONResponse({"session": opening.session, "key": key, "path": f"/s/{opening.session}/v1"}, 201)

    async def reward(request: Request) -> Response:
        body = read_body(RewardBody, await body_of(request))
        session = _session(service, request, body.session)
        written = service.gateway.reward(session, body.value, call=_call(body.call), why=body.why)
        if written is not None:
            await asyncio.wrap_future(written)
        return JSONResponse({"session": session, "value": body.value})

    async def end(request: Request) -> Response:
        body = read_body(EndBody, await body_of(request))
        session, reason = _session(service, request, body.session), body.reason
        if service.on_end is None:
            service.gateway.finish(session, reason)
            return JSONResponse({"session": session})
        opening = service.gateway.sessions[session].opening if session in service.gateway.sessions else None
        trace = await service.gateway.close(session, reason)
        assert opening is not None
        await service.on_end(opening, trace)
        told = {"steps": len(trace.steps), "reward": trace.reward, "end": trace.end, "abandoned": trace.abandoned}
        return JSONResponse({"session": session, **told})

    return [
        Route("/rl/sessions", sessions, methods=["POST"]),
        Route("/rl/reward", reward, methods=["POST"]),
        Route("/rl/end", end, methods=["POST"]),
    ]


def _session(service: Service, request: Request, named: str) -> str:
    """Return the session that a request is about: its key's, or with the admin key the one that its body names."""
    if service.is_admin(request):
        if not named:
            raise bad_request("session: which one?", "session", "missing_field")
        return named
    session = service.session(request)
    if named and named != session:
        raise ApiError(403, f"this key is not of the session {named!r}", "session_mismatch")
    return session


def _call(answer: str | int | None) -> int:
    """Return the call that a reward is for; 0: the session."""
    call = call_of(answer) if answer is not None else 0
    if answer is not None and not call:
        raise bad_request("call: the id of an answer is needed", "call")
    return call


logger = logging.getLogger("rl_agents.gateway")

MAX_BODY_BYTES = 32 * 2**20
RETRIES = "x-stainless-retry-count"
#: What nginx writes for a client that left.
CLIENT_LEFT = 499

T = TypeVar("T")


def make_app(
    gateway: Gateway, admin: str = "", on_end: OnEnd | None = None, local: bool = True, max_body_bytes: int = 0
) -> Any:
    """Build the ASGI application; ``admin`` is the SHA-256 of the admin key."""
    service = Service(gateway, admin, on_end, local)
    log = IgnoredLog(logger)
    asked = [Route(path, _ask(service, dialect, log), methods=["POST"]) for path, dialect in DIALECTS.items()]
    model_routes = [
        *asked,
        Route(messages.COUNT_PATH, _count(service), methods=["POST"]),
        Route("/v1/models", _models(service)),
        Route("/v1/models/{name:path}", _model(service)),
    ]
    routes = [*model_routes, *operation_routes(service), Mount("/s/{session}", routes=model_routes)]
    app = Starlette(routes=routes, exception_handlers=handlers(logger, "gateway"))
    return Guard(app, Keys(), max_body_bytes or MAX_BODY_BYTES, local=local, write=written)


def _ask(service: Service, dialect: ModuleType, log: IgnoredLog) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def ask(request: Request) -> Response:
        session = service.session(request)
        data = await body_of(request)
        call: ModelCall = dialect.read(data)
        sent, headers = _sent(request, dialect.PATH, data), ignored_header(call)
        log.note(call)
        if call.stream:
            pieces = await primed(service.gateway.stream(session, call, sent))
            return event_stream(dialect.events(call, pieces), headers)
        answers: list[ModelAnswer] | None = await _while_connected(request, service.gateway.answer(session, call, sent))
        if answers is None:
            return Response(status_code=CLIENT_LEFT)
        return JSONResponse(dialect.whole(call, answers), headers=headers)

    return ask


def _count(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def count(request: Request) -> Response:
        session = service.session(request)
        call = messages.read_count(await body_of(request))
        return JSONResponse(messages.counted(service.gateway.count_tokens(session, call)))

    return count


def _models(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def models(request: Request) -> Response:
        service.session(request)
        return JSONResponse(models_body([service.gateway.limits.model_name], service.gateway.created))

    return models


def _model(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def model(request: Request) -> Response:
        service.session(request)
        name = request.path_params["name"]
        if name != service.gateway.limits.model_name:
            raise ApiError(404, f"the model {name!r} does not exist", "model_not_found", "model")
        return JSONResponse(model_body(name, service.gateway.created))

    return model


def _sent(request: Request, path: str, data: Mapping[str, Any]) -> Sent:
    """Return how a request came. The two ways to name a session do not make it another request."""
    retry = request.headers.get(RETRIES, "")
    text = f"{path}\n{canonical(data)}"
    return Sent(hashlib.sha256(text.encode()).hexdigest(), int(retry) if retry.isdecimal() else -1)


async def _while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Await work; None when the client leaves before it is done."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for pending in (task, leaving):
            pending.cancel()
        await asyncio.gather(task, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def serving(
    gateway: Gateway, admin_key: str = "", host: str = "127.0.0.1", port: int = 0, on_end: OnEnd | None = None,
    max_body_bytes: int = MAX_BODY_BYTES,
) -> AsyncIterator[str]:  # fmt: skip
    """Serve a gateway on the current event loop; yields its address, without ``/v1``.

    Args:
        admin_key: opens sessions over HTTP; empty: none are.
        port: 0: a free one.

    Raises:
        OSError: the address cannot be listened on.
    """
    app = make_app(gateway, digest(admin_key) if admin_key else "", on_end, is_loopback(host), max_body_bytes)
    async with listening(app, host, port, "gateway server") as address:
        yield address
