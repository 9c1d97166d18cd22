"""``/rl``: sessions are opened with the admin key; rewards and ends are told with the session's own key or with it."""

from __future__ import annotations

import asyncio
import hmac
import math
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rl_agents.gateway.answers import call_of
from rl_agents.gateway.dialects.fields import Fields
from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.trace import SessionTrace
from rl_agents.store.records import Opening
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError, bad_request
from rl_agents.web.security import digest

#: Told of a session that its agent has ended.
OnEnd = Callable[[Opening, SessionTrace], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Service:
    """What all routes need.

    Attributes:
        admin: SHA-256 of the key that opens sessions; empty: nobody opens any over HTTP.
        on_end: gets sessions that were ended over HTTP; None: they only take no further calls, and whoever opened
            them closes them.
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
        """Whether a request brings the admin key."""
        return bool(self.admin) and hmac.compare_digest(digest(key_of(request)), self.admin)


def key_of(request: Request) -> str:
    """Return the key that a request brings; empty: none."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "").strip()


async def body_of(request: Request) -> dict[str, Any]:
    """Read a JSON object; see `json_object`."""
    return json_object(await request.body())


SESSION_FIELDS = ("session", "task_id", "group_id", "member", "seed", "task")


def routes(service: Service) -> list[Route]:
    """Return the routes below ``/rl``."""

    async def sessions(request: Request) -> Response:
        if not service.is_admin(request):
            status = 401 if service.admin else 403
            raise ApiError(status, "opening a session needs the gateway's admin key", "admin_key_needed")
        opening = _opening(await body_of(request))
        key = service.gateway.open(opening)
        await service.gateway.written()
        return JSONResponse({"session": opening.session, "key": key, "path": f"/s/{opening.session}/v1"}, 201)

    async def reward(request: Request) -> Response:
        data = await body_of(request)
        session = _session(service, request, data)
        fields = Fields(data)
        value, why = fields.number("value", -math.inf, math.inf), fields.text("why")
        if value is None:
            raise bad_request("value: a number is needed", "value")
        written = service.gateway.reward(session, float(value), call=_call(data.get("call")), why=why)
        if written is not None:
            await asyncio.wrap_future(written)
        return JSONResponse({"session": session, "value": value})

    async def end(request: Request) -> Response:
        data = await body_of(request)
        session, reason = _session(service, request, data), Fields(data).text("reason")
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


def _session(service: Service, request: Request, data: dict[str, Any]) -> str:
    """Return the session that a request is about: its key's, or with the admin key the one that its body names."""
    named = Fields(data).text("session")
    if service.is_admin(request):
        if not named:
            raise bad_request("session: which one?", "session", "missing_field")
        return named
    session = service.session(request)
    if named and named != session:
        raise ApiError(403, f"this key is not of the session {named!r}", "session_mismatch")
    return session


def _call(value: Any) -> int:
    """Return the call that a reward is for; 0: the session."""
    if value is None:
        return 0
    call = call_of(value) if isinstance(value, str | int) and not isinstance(value, bool) else 0
    if not call:
        raise bad_request("call: the id of an answer is needed", "call")
    return call


def _opening(data: dict[str, Any]) -> Opening:
    if unknown := sorted(set(data) - set(SESSION_FIELDS)):
        raise bad_request(f"{unknown[0]}: unknown; fields: {', '.join(SESSION_FIELDS)}", unknown[0])
    fields = Fields(data)
    session = fields.text("session") or secrets.token_hex(8)
    if not _is_name(session):
        raise bad_request("session: its name has letters, digits, '-', '_' and '.'", "session")
    group, member, seed = (fields.whole(name, 2**63 - 1, 0) or 0 for name in ("group_id", "member", "seed"))
    return Opening(session, group, member, seed, fields.text("task_id"), "", fields.object("task"))


def _is_name(text: str) -> bool:
    """Whether a text can stand in a path."""
    return 0 < len(text) <= 200 and text.isascii() and all(c.isalnum() or c in "-_." for c in text)
