"""The gateway over HTTP: model calls in three dialects, and ``/rl`` for sessions and rewards.

A request names its session by the session's key (``Authorization: Bearer`` or ``x-api-key``), by the path
(``/s/SESSION/v1/...``), or by both, which must agree. By path alone, only this machine is served. Under ``/rl``, the
admin key opens sessions; rewards and ends need the session's key or the admin key.
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
from typing import Any

from pydantic import ConfigDict, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from rl_agents.gateway import dialects
from rl_agents.gateway.answer_params import effective
from rl_agents.gateway.answers import PendingRequest
from rl_agents.gateway.calls import ModelCall, RequestIdentity
from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.routes import json_route, model_routes
from rl_agents.gateway.sessions import SessionTrace
from rl_agents.gateway.stream_view import call_of
from rl_agents.store.records import SessionStart
from rl_agents.tools.strict_json import canonical
from rl_agents.web.bodies import Body, json_object, read_body
from rl_agents.web.errors import ApiError, bad_request, handlers
from rl_agents.web.listening import listening
from rl_agents.web.security import Guard, Keys, digest, is_loopback, key_of

logger = logging.getLogger("rl_agents.gateway")

MAX_BODY_BYTES = 32 * 2**20
RETRIES = "x-stainless-retry-count"

#: Gets a session that its agent has ended.
OnEnd = Callable[[SessionStart, SessionTrace], Coroutine[Any, Any, None]]


class SessionBody(Body):
    """``POST /rl/sessions``; without ``session`` or ``seed`` it gets a random one."""

    session: str = Field("", max_length=200, pattern=r"^[A-Za-z0-9_.-]*$")
    task_id: str = ""
    group_id: int = Field(0, ge=0, lt=2**63)
    member: int = Field(0, ge=0, lt=2**63)
    seed: int = Field(default_factory=lambda: secrets.randbits(63), ge=0, lt=2**63)
    task: dict[str, Any] = Field({})


class NamedBody(Body):
    model_config = ConfigDict(extra="ignore", strict=True)
    session: str = ""


class RewardBody(NamedBody):
    """``POST /rl/reward``; ``call``: the id of the rewarded answer, or the number of its call."""

    value: float
    why: str = ""
    call: str | int | None = None


class EndBody(NamedBody):
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class GatewayApi(Keys):
    """The routes and the keys of a gateway.

    Attributes:
        admin: SHA-256 of the key that opens sessions; empty: none are opened over HTTP.
        on_end: gets sessions that were ended over HTTP; None: they only refuse further calls, and their opener closes
            them.
        local: only this machine is served.
    """

    gateway: Gateway
    admin: str
    on_end: OnEnd | None
    local: bool

    # --- access --------------------------------------------------------------------------------------------------

    def check(self, path: str, key: str) -> None:
        """See `Keys.check`; on this machine alone, a path may name the session instead."""
        if not (self.local or self.gateway.session_of(key) or self.is_admin(key)):
            raise ApiError(401, "this key belongs to no session", "invalid_api_key")

    def session(self, request: Request) -> str:
        """Return the session that a request names, or raise an `ApiError`: 401 without a key, 403 if both disagree."""
        key, path = key_of(request.headers), request.path_params.get("session", "")
        if not key:
            if path and self.local:
                return str(path)
            raise ApiError(401, "a session's key is required: Authorization: Bearer KEY", "invalid_api_key")
        found = self.gateway.session_of(key)
        if not found:
            raise ApiError(401, "this key belongs to no session", "invalid_api_key")
        if path and path != found:
            raise ApiError(403, f"this key does not belong to the session {path!r}", "session_mismatch")
        return found

    def is_admin(self, key: str) -> bool:
        return bool(self.admin) and hmac.compare_digest(digest(key), self.admin)

    def named(self, request: Request, name: str) -> str:
        """Return the session that a request is about: that of its key, or with the admin key the one in its body."""
        if self.is_admin(key_of(request.headers)):
            if not name:
                raise bad_request("session: the admin key needs a session to be named", "session", "missing_field")
            return name
        session = self.session(request)
        if name and name != session:
            raise ApiError(403, f"this key does not belong to the session {name!r}", "session_mismatch")
        return session

    # --- model calls ---------------------------------------------------------------------------------------------

    def begin(self, request: Request, dialect: ModuleType, body: bytes) -> tuple[ModelCall, PendingRequest]:
        session, data = self.session(request), json_object(body)
        call = effective(dialect.read(data), self.gateway.limits)
        return call, self.gateway.begin(session, call, _identity(request, dialect.PATH, data))

    def count(self, request: Request, body: bytes) -> int:
        session = self.session(request)
        call = effective(dialects.messages.read_count(json_object(body)), self.gateway.limits)
        return self.gateway.count_tokens(session, call)

    def model(self, request: Request) -> dict[str, Any]:
        self.session(request)
        return dialects.model_body(self.gateway.limits.model_name, self.gateway.created)

    # --- sessions ------------------------------------------------------------------------------------------------

    async def open(self, request: Request) -> dict[str, Any]:
        if not self.is_admin(key_of(request.headers)):
            status = 401 if self.admin else 403
            raise ApiError(status, "opening a session needs the gateway's admin key", "admin_key_needed")
        body = read_body(SessionBody, await body_of(request))
        session = body.session or secrets.token_hex(8)
        opening = SessionStart(session, body.group_id, body.member, body.seed, body.task_id, "", body.task)
        key = self.gateway.open(opening)
        await self.gateway.written()
        return {"session": session, "key": key, "path": f"/s/{session}/v1"}

    async def reward(self, request: Request) -> dict[str, Any]:
        body = read_body(RewardBody, await body_of(request))
        session = self.named(request, body.session)
        call = call_of(body.call) if body.call is not None else 0
        if body.call is not None and not call:
            raise bad_request("call: the id of an answer is needed", "call")
        on_disk = self.gateway.reward(session, body.value, call=call, why=body.why)
        if on_disk is not None:
            await asyncio.wrap_future(on_disk)
        return {"session": session, "value": body.value}

    async def end(self, request: Request) -> dict[str, Any]:
        body = read_body(EndBody, await body_of(request))
        session = self.named(request, body.session)
        if self.on_end is None:
            self.gateway.finish(session, body.reason)
            return {"session": session}
        if session not in self.gateway.ends:  # else it is a retry
            opening = self.gateway.opening(session)
            work = self._ended(self.on_end, opening, body.reason)
            self.gateway.ends[session] = asyncio.create_task(work, name=f"end of {session}")
        return await asyncio.shield(self.gateway.ends[session])

    async def _ended(self, on_end: OnEnd, opening: SessionStart, reason: str) -> dict[str, Any]:
        trace = await self.gateway.close(opening.session, reason)
        await on_end(opening, trace)
        result = {"steps": len(trace.steps), "reward": trace.reward, "end": trace.end, "abandoned": trace.abandoned}
        return {"session": opening.session, **result}


def make_app(gateway: Gateway, admin: str, on_end: OnEnd | None, local: bool) -> Any:
    """Return the ASGI application; ``admin`` is the SHA-256 of the admin key."""
    api = GatewayApi(gateway=gateway, admin=admin, on_end=on_end, local=local)
    calls = model_routes(api)
    sessions = [
        json_route("/rl/sessions", api.open, "POST", 201),
        json_route("/rl/reward", api.reward, "POST"),
        json_route("/rl/end", api.end, "POST"),
    ]
    routes = [*calls, *sessions, Mount("/s/{session}", routes=calls)]
    app = Starlette(routes=routes, exception_handlers=handlers(logger, "gateway's log", dialects.error_body))
    return Guard(app, api, MAX_BODY_BYTES, local=local, write=dialects.error_body)


async def body_of(request: Request) -> dict[str, Any]:
    return json_object(await request.body())


def _identity(request: Request, path: str, data: Mapping[str, Any]) -> RequestIdentity:
    """Return the identity of a request, which does not depend on how it names its session."""
    retry = request.headers.get(RETRIES, "")
    text = f"{path}\n{canonical(data)}"
    number = int(retry) if retry.isdecimal() and len(retry) < 10 else -1  # longer ones do not fit a store
    return RequestIdentity(hashlib.sha256(text.encode()).hexdigest(), number)


@contextlib.asynccontextmanager
async def serving(
    gateway: Gateway, admin_key: str = "", host: str = "127.0.0.1", port: int = 0, on_end: OnEnd | None = None
) -> AsyncIterator[str]:
    """Serve a gateway on the current event loop and yield its address, without ``/v1``.

    Args:
        admin_key: opens sessions over HTTP; empty: none are opened.
        port: 0 takes a free one.

    Raises:
        OSError: the address cannot be used.
    """
    app = make_app(gateway, digest(admin_key) if admin_key else "", on_end, is_loopback(host))
    async with listening(app, host, port, "gateway server") as address:
        yield address
