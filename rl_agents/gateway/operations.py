"""``/rl``: sessions are opened with the admin key; rewards and ends are told with the session's own key or with it."""

from __future__ import annotations

import secrets
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rl_agents.gateway.answers import call_of
from rl_agents.gateway.service import Service, body_of
from rl_agents.store.records import Opening
from rl_agents.web.errors import ApiError, bad_request

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
        value, why = data.get("value"), data.get("why", "")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise bad_request("value: a number is needed", "value")
        if not isinstance(why, str):
            raise bad_request("why: a text is needed", "why")
        call = _call(data.get("call"))
        await service.gateway.note(session, float(value), call, why)
        return JSONResponse({"session": session, "value": value})

    async def end(request: Request) -> Response:
        data = await body_of(request)
        session, reason = _session(service, request, data), data.get("reason", "")
        if not isinstance(reason, str):
            raise bad_request("reason: a text is needed", "reason")
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
    named = data.get("session", "")
    if not isinstance(named, str):
        raise bad_request("session: a text is needed", "session")
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
    session, task_id = data.get("session") or secrets.token_hex(8), data.get("task_id", "")
    numbers = {name: data.get(name, 0) for name in ("group_id", "member", "seed")}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
            raise bad_request(f"{name}: a whole number from 0 on is needed", name)
    if not isinstance(session, str) or not isinstance(task_id, str) or not _is_name(session):
        raise bad_request("session and task_id: texts; a session's has letters, digits, '-', '_' and '.'", "session")
    if not isinstance(data.get("task", {}), dict):
        raise bad_request("task: an object is needed", "task")
    return Opening(session, numbers["group_id"], numbers["member"], numbers["seed"], task_id, "", data.get("task", {}))


def _is_name(text: str) -> bool:
    """Whether a text can stand in a path."""
    return 0 < len(text) <= 200 and text.isascii() and all(c.isalnum() or c in "-_." for c in text)
