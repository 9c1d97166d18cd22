"""A shop behind HTTP, seen from an environment; see `rl_agents.envs.webshop.service`."""

from __future__ import annotations

import http.client
import json
import os
import time
from typing import Any
from urllib.parse import urlencode, urlsplit

from rl_agents.envs.webshop.pages import State
from rl_agents.envs.webshop.shop import ShopReply
from rl_agents.errors import InputError

#: Environment variable with the key that a service and its callers share.
KEY_VARIABLE = "RL_AGENTS_WEBSHOP_KEY"
RETRY_S = 0.25
#: After a service gave no answer in time, the other environments of this process do not wait for it either: for
#: DISTRUST_S seconds each request has FAST_S. Long enough for all episodes of an iteration to end, short enough that
#: the next iteration waits anew: a run whose service is away does not rush to its end.
DISTRUST_S, FAST_S = 5.0, 0.5
MAX_ANSWER = 16 * 1024 * 1024

_failed_at: dict[str, float] = {}


class ServiceError(RuntimeError):
    """A service does not answer, or not as it should; the message names it."""


class RemoteShop:
    """A connection to a service. Requests may be repeated without harm, and are while the service restarts.

    Args:
        url: ``http://host:port``.
        timeout_s: seconds that a request may take, repetitions included.

    Raises:
        InputError: another form of URL.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise InputError(f"env.service_url={url}: it must read http://host:port")
        if timeout_s <= 0:
            raise InputError(f"env.service_timeout_s is {timeout_s:g}: it must be above 0")
        self.url, self._timeout_s = url, timeout_s
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        try:
            self._connection = kind(parts.hostname, parts.port, timeout=timeout_s)
        except ValueError as error:
            raise InputError(f"env.service_url={url}: {error}") from error

    def task_ids(self, split: str, kind: str) -> list[str]:
        """See `rl_agents.envs.webshop.shop.Shop`.

        Raises:
            InputError: the service refuses; its reason is given.
            ServiceError: it does not answer.
        """
        status, answer = self._call("GET", f"/tasks?{urlencode({'split': split, 'goals': kind})}")
        return [str(name) for name in self._accepted(status, answer)["task_ids"]]

    def reset(self, task_id: str) -> ShopReply:
        """See `rl_agents.envs.webshop.shop.Shop`; raises as `task_ids` does."""
        status, answer = self._call("POST", "/reset", {"task_id": task_id})
        return self._turn(self._accepted(status, answer))

    def step(self, task_id: str, state: State, command: str) -> ShopReply:
        """See `rl_agents.envs.webshop.shop.Shop`.

        Raises:
            ServiceError: the service does not answer or, as with another catalogue, does not know the state.
        """
        body = {"task_id": task_id, "state": state.to_json(), "command": command}
        status, answer = self._call("POST", "/step", body)
        if status != 200:
            raise ServiceError(f"webshop service {self.url}: {answer.get('error', status)}")
        return self._turn(answer)

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        self._connection.close()

    def _accepted(self, status: int, answer: dict[str, Any]) -> dict[str, Any]:
        if status != 200:
            raise InputError(f"webshop service {self.url}: {answer.get('error', status)}")
        return answer

    def _turn(self, answer: dict[str, Any]) -> ShopReply:
        try:
            return ShopReply.from_json(answer)
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceError(f"webshop service {self.url}: its answer cannot be read ({error!r:.200})") from error

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Send a request until it is answered or the time is over.

        Raises:
            ServiceError: the time is over, or the answer is no JSON object.
        """
        wait_s = min(self._timeout_s, FAST_S) if self._distrusted() else self._timeout_s
        deadline = time.monotonic() + wait_s
        data = b"" if body is None else json.dumps(body, ensure_ascii=True).encode()
        fresh = self._connection.sock is None
        while True:
            try:
                status, received = self._exchange(method, path, data, deadline)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                # A connection that was kept may have been closed at the other end: that says nothing about the service.
                if fresh and time.monotonic() + RETRY_S >= deadline:
                    if wait_s == self._timeout_s:
                        _failed_at[self.url] = time.monotonic()
                    reason = str(error) or type(error).__name__
                    raise ServiceError(
                        f"webshop service {self.url}: no answer within {wait_s:g} s ({reason})"
                    ) from error
                if fresh:
                    time.sleep(RETRY_S)
                fresh = True
                continue
            _failed_at.pop(self.url, None)
            return status, self._object(received)

    def _exchange(self, method: str, path: str, data: bytes, deadline: float) -> tuple[int, bytes]:
        key = os.environ.get(KEY_VARIABLE, "")
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        connection = self._connection
        connection.timeout = max(deadline - time.monotonic(), 0.01)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        received = response.read(MAX_ANSWER)
        if response.read(1):
            raise http.client.HTTPException(f"an answer of more than {MAX_ANSWER} bytes")
        return response.status, received

    def _distrusted(self) -> bool:
        return time.monotonic() - _failed_at.get(self.url, -DISTRUST_S) < DISTRUST_S

    def _object(self, received: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(received)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise ServiceError(f"webshop service {self.url}: an answer that is no JSON object: {received[:80]!r}")
        return answer
