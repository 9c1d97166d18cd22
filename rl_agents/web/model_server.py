"""Calls of model servers over HTTP: bounded in number and in time, tried again where that can help.

    pause before attempt k+1 = RETRY_PAUSE_S * 2^(k-1)      after a timeout, a lost connection, HTTP 429 or 5xx

A server that says how long to wait is believed, and every other call of it waits, too (`rl_agents.web.pacing`). There
is no jitter: calls leave one after the other anyway, and nothing here draws a random number.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self
from urllib.parse import urlsplit

from rl_agents.background import elsewhere
from rl_agents.errors import InputError
from rl_agents.queues import in_line
from rl_agents.web.pacing import PATIENCE_S, LongPause, Pace, remaining_calls, told_to_wait, used_up

#: Before the first retry; doubles with each.
RETRY_PAUSE_S = 0.5
#: A reply's bytes, at most.
MAX_REPLY = 8 << 20
#: So often, and `PATIENCE_S` in all, a call waits because the server told it to; that costs no retry.
MAX_TOLD = 20
#: A success that says its limit is used up holds the others back no longer than this: they may ask again.
MAX_PRECAUTION_S = 60.0
#: An open connection is used again within this many seconds: servers close them after five or more.
KEEP_ALIVE_S = 2.0
SHOWN = 160


class ServerError(Exception):
    """No usable reply; the message says what happened, without naming the server."""


@dataclass(frozen=True)
class ModelServer:
    """A server of models, such as one behind OpenAI's API; calls may come from any event loop or thread.

    Attributes:
        url: up to and including ``/v1``.
        headers: of every request; the key's, where one is needed. Never shown.
        timeout_s: of a whole request, from the connection to the last byte of the reply.
        retries: further attempts after a timeout, a lost connection, or HTTP 429 or 5xx.
        concurrency: requests of this process under way at the same time; shared by all who ask the same server with
            the same key and bound.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False, hash=False)
    timeout_s: float
    retries: int
    concurrency: int

    @classmethod
    def connect(
        cls, url: str, *, key_env: str, timeout_s: float, retries: int, concurrency: int, option: str = "judge"
    ) -> Self:
        """Describe a server; the key is read from the environment variable ``key_env`` and only ever sent.

        Args:
            option: how the keys that describe it begin, for errors.

        Raises:
            InputError: the variable with the key is not set.
        """
        headers = {}
        if key_env:
            if not os.environ.get(key_env):
                raise InputError(f"{option}_key_env={key_env}: the environment variable is not set")
            headers["Authorization"] = f"Bearer {os.environ[key_env]}"
        return cls(url.rstrip("/"), headers, timeout_s, retries, concurrency)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the reply to a POST of JSON as plain values.

        Raises:
            ServerError: no reply after as many attempts as allowed, or one that is no JSON.
        """
        return await elsewhere(_Call(self, f"{self.url}{path}", body).reply())


class _Overloaded(Exception):
    """The server refuses for now; ``wait_s``: what it asks to wait, 0 when it does not say."""

    def __init__(self, problem: str, wait_s: float) -> None:
        super().__init__(problem)
        self.wait_s = wait_s


class _Transient(Exception):
    """Worth another attempt."""


class _Peer:
    """What all calls of a server with one key share, in the background loop."""

    def __init__(self, headers: Mapping[str, str], name: str) -> None:
        self._name = name
        self._headers = {"Accept-Encoding": "identity", **headers}  # a small reply cannot unpack into a large one
        self._idle: list[Any] = []
        self.paces: dict[int, Pace] = {}
        self.tickets = itertools.count()

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """Lend a client that nobody else uses: httpx looks at all connections of a pool for each request."""
        http = self._idle.pop() if self._idle else self._new_client()
        try:
            yield http
        finally:
            self._idle.append(http)

    def _new_client(self) -> Any:
        import httpx

        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE_S)
        return httpx.AsyncClient(headers=self._headers, timeout=None, limits=limits, verify=_trust())

    def pace(self, bound: int) -> Pace:
        if bound not in self.paces:
            self.paces[bound] = Pace(bound, self._name)
        return self.paces[bound]

    def pause(self, seconds: float, *, restart: bool = True) -> None:
        for pace in self.paces.values():
            pace.pause(seconds, restart=restart)


@lru_cache(maxsize=1)
def _trust() -> Any:
    """Whom connections trust; slow to load."""
    import httpx

    return httpx.create_ssl_context()


#: By event loop, which is the process's, server and key. Few: they are never forgotten.
_peers: dict[tuple[int, str, str], _Peer] = {}


def _peer(server: ModelServer) -> _Peer:
    try:
        place, key = urlsplit(server.url), server.headers.get("Authorization", "")
    except ValueError as error:
        raise ServerError(str(error)) from None
    name = id(asyncio.get_running_loop()), f"{place.scheme}://{place.netloc}", key
    if name not in _peers:
        _peers[name] = _Peer(server.headers, name[1])
    return _peers[name]


class _Call:
    """One call with all its attempts, in the background loop."""

    def __init__(self, server: ModelServer, url: str, body: Mapping[str, Any]) -> None:
        self.server, self.url = server, url
        self.content = json.dumps(body).encode()
        self.attempts = self.told = self.failures = 0
        self.told_s = 0.0

    async def reply(self) -> Any:
        """See `ModelServer.post`."""
        peer = _peer(self.server)
        pace, ticket = peer.pace(self.server.concurrency), next(peer.tickets)
        problem = ""
        while True:
            try:
                with in_line(pace.line, self.server.timeout_s):
                    await pace.enter(ticket)
            except LongPause as error:
                raise ServerError("; ".join(filter(None, [problem, str(error)]))) from None
            own_pause = 0.0
            try:
                self.attempts += 1
                return await self._attempt(peer, pace)
            except _Overloaded as refusal:
                problem = str(refusal)
                peer.pause(self._told(refusal))
            except _Transient as error:
                own_pause = self._failed(str(error))
            finally:
                pace.leave()
            await asyncio.sleep(own_pause)

    def _told(self, refusal: _Overloaded) -> float:
        """Return the seconds to wait: what the server said, else as after any failure."""
        if not refusal.wait_s or self.told == MAX_TOLD or self.told_s > PATIENCE_S:
            return self._failed(str(refusal))
        self.told += 1
        self.told_s += refusal.wait_s
        return refusal.wait_s

    def _failed(self, problem: str) -> float:
        """Count a failure and return the seconds until the next attempt.

        Raises:
            ServerError: there is none.
        """
        self.failures += 1
        if self.failures > self.server.retries:
            raise ServerError(f"{problem} ({self.attempts} attempts)") from None
        return float(RETRY_PAUSE_S * 2 ** (self.failures - 1))

    async def _attempt(self, peer: _Peer, pace: Pace) -> Any:
        import httpx

        try:
            async with asyncio.timeout(self.server.timeout_s):  # a client's own limits bound single reads only
                with peer.client() as http:
                    status, headers, content = await self._exchange(http)
        except TimeoutError:
            raise _Transient(f"no answer within {self.server.timeout_s:g} s") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ServerError(f"{type(error).__name__}: {error}") from None
        except httpx.HTTPError as error:
            raise _Transient(f"{type(error).__name__}: {error}") from None
        said = content[: 4 * SHOWN].decode("utf-8", "replace")[:SHOWN]
        if status == 429 or status >= 500:
            raise _refusal(status, headers, f"HTTP {status}: {said}")
        pace.succeeded(remaining_calls(headers))
        if wait := used_up(headers):
            peer.pause(min(wait, MAX_PRECAUTION_S), restart=False)
        if status != 200:
            raise ServerError(f"HTTP {status}: {said}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise ServerError(f"no JSON in {said!r}") from None

    async def _exchange(self, http: Any) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and content of one request.

        Raises:
            ServerError: the reply is too long.
        """
        parts, size = [], 0
        sent = {"Content-Type": "application/json"}
        async with http.stream("POST", self.url, content=self.content, headers=sent) as response:
            async for part in response.aiter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_REPLY:
                    raise ServerError(f"replied with more than {MAX_REPLY} bytes")
        return response.status_code, response.headers, b"".join(parts)


def _refusal(status: int, headers: Mapping[str, str], problem: str) -> _Overloaded | _Transient:
    """Return what a status of 429 or 5xx means: the server has too much to do, or failed with this one request."""
    wait = told_to_wait(headers)
    return _Transient(problem) if wait is None and status not in (429, 503) else _Overloaded(problem, wait or 0.0)
