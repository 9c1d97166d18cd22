"""Access control: API keys, loopback only without one, and the size of request bodies."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from rl_agents.errors import InputError
from rl_agents.web.errors import ApiError

Scope = MutableMapping[str, Any]
Headers = Mapping[bytes, bytes]
#: Writes the body of a refusal, given the request's path and headers.
Write = Callable[[ApiError, str, Mapping[str, str]], Mapping[str, Any]]

MIN_KEY_CHARACTERS = 16
#: What needs no key: the page and the probes.
OPEN_PATHS = ("/", "/healthz", "/readyz")
OPEN_FOLDER = "/static/"


@dataclass(frozen=True)
class Keys:
    """SHA-256 digests of the keys, which is all that the cluster stores of them; empty: no key."""

    api: str = ""
    admin: str = ""

    @classmethod
    def from_environment(cls, api: str, admin: str = "") -> Keys:
        """Read the keys from environment variables.

        Args:
            api: name of the variable with the API key; empty: none.
            admin: name of the variable with the key of ``/admin``; empty: none.

        Raises:
            InputError: a variable is not set, or its key is too short.
        """
        return cls(_digest_of(api), _digest_of(admin))

    def check(self, path: str, authorization: str) -> None:
        """Check the key of a request.

        Raises:
            ApiError: 401 without a right key, 403 for ``/admin`` when its key is not set.
        """
        if not self.api or path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return
        scheme, _, key = authorization.partition(" ")
        given = digest(key.strip()) if scheme.lower() == "bearer" else ""
        # Compared before the path is looked at: an answer tells nothing to those without a key.
        is_api, is_admin = hmac.compare_digest(given, self.api), hmac.compare_digest(given, self.admin or "-")
        if not (is_api or is_admin):
            raise ApiError(401, "a valid API key is required: Authorization: Bearer KEY", "invalid_api_key")
        if path.startswith("/admin/") and not is_admin:
            raise ApiError(403, "this needs the admin key (server option admin_key_env)", "admin_key_needed")


def digest(key: str) -> str:
    """Return the SHA-256 of a key in hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def _digest_of(variable: str) -> str:
    return digest(read_key(variable)) if variable else ""


def read_key(variable: str) -> str:
    """Return the key that an environment variable holds.

    Raises:
        InputError: it is not set, or its key is too short.
    """
    key = os.environ.get(variable, "")
    if len(key) < MIN_KEY_CHARACTERS:
        state = "is not set" if not key else f"has {len(key)} characters"
        raise InputError(f"environment variable {variable} {state}: a key of {MIN_KEY_CHARACTERS} or more is required")
    return key


def is_loopback(host: str) -> bool:
    """Whether an address or name can only be reached from this machine."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, has_key: bool) -> None:
    """Refuse to listen to other machines without a key.

    Raises:
        InputError: how to set one.
    """
    if not has_key and not is_loopback(host):
        raise InputError(f"host {host} can be reached from other machines: set a key with --api-key-env VARIABLE")


class Guard:
    """ASGI middleware: keys, origin, and size and type of bodies, before anything reads them."""

    def __init__(
        self, app: Any, keys: Keys, max_body_bytes: int, local: bool | None = None, write: Write | None = None
    ) -> None:
        """Guard an application.

        Args:
            local: serve this machine only; None: where there is no key.
            write: writes a refusal's body, given the path and the headers (names in lower case); None: OpenAI's form.
        """
        self._app, self._keys, self._max_body_bytes, self._write = app, keys, max_body_bytes, write
        self._local = not keys.api if local is None else local

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers: Headers = dict(scope["headers"])
            if self._local:
                _check_local(scope, headers)
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            self._keys.check(path, _authorization(headers))
            body = await self._body(scope, headers, receive)
        except ApiError as error:
            await send_error(send, error, self._refusal(scope, error))
            return
        await self._app(scope, _Replay(body, receive), send)

    def _refusal(self, scope: Scope, error: ApiError) -> Mapping[str, Any]:
        if self._write is None:
            return error.body()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        return self._write(error, scope["path"], headers)

    async def _body(self, scope: Scope, headers: Headers, receive: Any) -> bytes:
        """Read the body up to the limit.

        Raises:
            ApiError: 413 beyond it, 415 for another type than JSON.
        """
        if scope["method"] in ("GET", "HEAD", "DELETE", "OPTIONS"):
            return b""
        declared = headers.get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._max_body_bytes:
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
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        # A page of another origin can send other types to this machine without asking the browser's leave.
        if size and kind != b"application/json":
            raise ApiError(415, "send the body as Content-Type: application/json", "unsupported_media_type")
        return b"".join(parts)

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_body_bytes} bytes", "body_too_large")


def _authorization(headers: Headers) -> str:
    """Return how a request names its key; Anthropic's clients send it by itself."""
    given, key = headers.get(b"authorization", b""), headers.get(b"x-api-key", b"")
    return (given or (b"Bearer " + key if key else b"")).decode("latin-1")


class _Replay:
    """Gives the application the body that was read, then what the connection says."""

    def __init__(self, body: bytes, receive: Any) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Any:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _check_local(scope: Scope, headers: Headers) -> None:
    """Without a key only this machine is served, and only under its own name (no page elsewhere can borrow it)."""
    client = (scope.get("client") or ("", 0))[0]
    host = headers.get(b"host", b"localhost").decode("latin-1")
    name = host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if not is_loopback(str(client)) or not is_loopback(name):
        raise ApiError(403, "this server has no API key and answers its own machine only", "loopback_only")


async def send_error(send: Any, error: ApiError, written: Mapping[str, Any] | None = None) -> None:
    """Answer with an error; ``written``: its body, where it has another form than OpenAI's."""
    body = json.dumps(error.body() if written is None else written).encode()
    await send({"type": "http.response.start", "status": error.status, "headers": _raw(error.headers().items(), body)})
    await send({"type": "http.response.body", "body": body})


def _raw(headers: Iterable[tuple[str, str]], body: bytes) -> list[tuple[bytes, bytes]]:
    own = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return [(name.lower().encode(), value.encode()) for name, value in [*own, *headers]]
