"""Access control: API keys, loopback only without a key, and the size of request bodies."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from rl_agents.errors import InputError
from rl_agents.web.errors import ApiError, Write

Scope = MutableMapping[str, Any]

MIN_KEY_CHARACTERS = 16
#: Paths without a key: the page and the probes.
OPEN_PATHS = ("/", "/healthz", "/readyz")
OPEN_FOLDER = "/static/"


@dataclass(frozen=True)
class Keys:
    """SHA-256 digests of the keys; the cluster stores nothing else of them. Empty: no key."""

    api: str = ""
    admin: str = ""

    @classmethod
    def from_environment(cls, api: str, admin: str = "") -> Keys:
        """Read the keys from the environment variables with these names; an empty name: no key.

        Raises:
            InputError: a variable is not set, or its key is too short.
        """
        return cls(*(digest(read_key(variable)) if variable else "" for variable in (api, admin)))

    def check(self, path: str, key: str) -> None:
        """Raise an `ApiError`, before a body is read: 401 without a valid key, 403 for ``/admin`` with the other."""
        if not self.api or path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return
        given = digest(key)
        # Compared before the path is read: without a key, an answer reveals nothing.
        is_api, is_admin = hmac.compare_digest(given, self.api), hmac.compare_digest(given, self.admin or "-")
        if not (is_api or is_admin):
            raise ApiError(401, "a valid API key is required: Authorization: Bearer KEY", "invalid_api_key")
        if path.startswith("/admin/") and not is_admin:
            raise ApiError(403, "this needs the admin key (server option admin_key_env)", "admin_key_needed")


def key_of(headers: Mapping[str, str]) -> str:
    """Return the key of a request; empty: none. Anthropic's clients send ``x-api-key``."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def read_key(variable: str) -> str:
    """Return the key in an environment variable, or raise `InputError`: it is not set, or its key is too short."""
    key = os.environ.get(variable, "")
    if len(key) < MIN_KEY_CHARACTERS:
        state = "is not set" if not key else f"has {len(key)} characters"
        raise InputError(f"environment variable {variable} {state}: a key of {MIN_KEY_CHARACTERS} or more is required")
    return key


def is_loopback(host: str) -> bool:
    """Return whether an address or name can only be reached from this machine."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, has_key: bool) -> None:
    """Refuse to listen to other machines without a key: an `InputError` that names the flag that sets one."""
    if not has_key and not is_loopback(host):
        raise InputError(f"host {host} can be reached from other machines: set a key with --api-key-env VARIABLE")


class Guard:
    """ASGI middleware that checks keys, origin, and size and type of bodies before the application runs."""

    def __init__(self, app: Any, keys: Keys, max_body_bytes: int, write: Write, local: bool | None = None) -> None:
        """
        Args:
            local: serve this machine only; None: if there is no key.
            write: returns the body of an error, given the path and the headers (names in lower case).
        """
        self._app, self._keys, self._max_body_bytes, self._write = app, keys, max_body_bytes, write
        self._local = not keys.api if local is None else local

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            if self._local:
                _check_local(scope, headers)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            self._keys.check(path, key_of(headers))
            body = await self._body(scope, headers, receive)
        except ApiError as error:
            written = self._write(error, scope["path"], Headers(scope=scope))
            await JSONResponse(written, error.status, dict(error.headers()))(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    async def _body(self, scope: Scope, headers: Headers, receive: Any) -> bytes:
        if scope["method"] in ("GET", "HEAD", "DELETE", "OPTIONS"):
            return b""
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self._max_body_bytes:
            raise self._too_large()
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            part = message.get("body", b"")
            size += len(part)
            if size > self._max_body_bytes:
                raise self._too_large()
            parts.append(part)
            more = message.get("more_body", False)
        kind = headers.get("content-type", "").split(";")[0].strip().lower()
        # Pages of other origins can send other types to this machine without a preflight request.
        if size and kind != "application/json":
            raise ApiError(415, "send the body as Content-Type: application/json", "unsupported_media_type")
        return b"".join(parts)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_body_bytes} bytes", "body_too_large")


def _replayed(body: bytes, receive: Any) -> Any:
    """Return a channel with the body that was read, followed by the connection's own messages."""
    bodies = [body]

    async def replay() -> Any:
        return {"type": "http.request", "body": bodies.pop(), "more_body": False} if bodies else await receive()

    return replay


def _check_local(scope: Scope, headers: Headers) -> None:
    """Refuse other machines, and other names of this one, which pages of other origins could use."""
    client = (scope.get("client") or ("", 0))[0]
    host = headers.get("host", "localhost")
    name = host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(str(client)) or not is_loopback(name):
        raise ApiError(403, "this server has no API key and answers its own machine only", "loopback_only")
