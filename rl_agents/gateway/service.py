"""What all of the gateway's routes need: whose a request is, and what it says."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from rl_agents.gateway.gateway import Gateway
from rl_agents.gateway.trace import SessionTrace
from rl_agents.store.records import Opening
from rl_agents.web.bodies import json_object
from rl_agents.web.errors import ApiError
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
