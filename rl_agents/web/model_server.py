"""Calls to model servers through the ``openai`` client, with limits on number and time, and with retries.

After a timeout, a lost connection, or HTTP 408, 409, 429 and 5xx, the client waits for the server's ``Retry-After``, or
else 0.5 s, 1 s, 2 s and so on. Meanwhile the call keeps its place, so an overloaded server gets fewer requests.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from rl_agents.background import elsewhere
from rl_agents.errors import InputError
from rl_agents.queues import CallQueue, queued

#: Longest wait of the client between two attempts, in seconds (openai's ``MAX_RETRY_AFTER_DELAY``).
LONGEST_PAUSE_S = 120.0
SHOWN = 160


class ServerError(Exception):
    """There is no usable reply; the message has the reason, without the server's name."""


@dataclass(frozen=True)
class ModelServer:
    """A server with OpenAI's API; calls may come from any event loop or thread.

    Attributes:
        url: up to and including ``/v1``.
        key: sent as a bearer token; empty: none. Never shown.
        timeout_s: of one attempt.
        retries: number of further attempts.
        concurrency: concurrent requests of this process; shared by all callers with the same server, key and limit.
    """

    url: str
    key: str = field(repr=False)
    timeout_s: float
    retries: int
    concurrency: int

    @classmethod
    def connect(
        cls, url: str, *, key_env: str, timeout_s: float, retries: int, concurrency: int, option: str = "judge"
    ) -> Self:
        """Return a server; its key is read from the environment variable ``key_env``.

        Args:
            option: prefix of the keys that describe it, for errors.

        Raises:
            InputError: the variable is not set.
        """
        if key_env and not os.environ.get(key_env):
            raise InputError(f"{option}_key_env={key_env}: the environment variable is not set")
        return cls(url.rstrip("/"), os.environ[key_env] if key_env else "", timeout_s, retries, concurrency)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Return the reply to a POST of JSON as plain values.

        Raises:
            ServerError: no reply after all attempts, or a reply that is not JSON.
        """
        return await elsewhere(self._post(path, body))

    async def _post(self, path: str, body: Mapping[str, Any]) -> Any:
        longest_s = self.timeout_s * (self.retries + 1) + LONGEST_PAUSE_S * self.retries
        peer = _peer(id(asyncio.get_running_loop()), self.url, self.key, self.concurrency)
        with queued(peer.line, longest_s):
            await peer.places.acquire()
        peer.line.moves()
        try:
            async with asyncio.timeout(longest_s):  # the client's own limit applies to single reads
                return await self._reply(peer.client, path, body)
        except TimeoutError:
            raise ServerError(f"no answer within {longest_s:g} s") from None
        finally:
            peer.places.release()

    async def _reply(self, client: Any, path: str, body: Mapping[str, Any]) -> Any:
        import openai

        asked = client.with_options(timeout=self.timeout_s, max_retries=self.retries)
        headers = {} if self.key else {"Authorization": openai.Omit()}
        attempts = f"({self.retries + 1} attempts)"
        try:
            found = await asked.post(path, cast_to=object, body=dict(body), options={"headers": headers})
        except openai.APITimeoutError:
            raise ServerError(f"no answer within {self.timeout_s:g} s {attempts}") from None
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            raise ServerError(f"{type(cause).__name__}: {cause} {attempts}") from None
        except openai.APIStatusError as error:
            raise ServerError(f"HTTP {error.status_code}: {error.response.text[:SHOWN]}") from None
        except (ValueError, RecursionError) as error:
            raise ServerError(f"no JSON: {error}"[:SHOWN]) from None
        if not isinstance(found, str):
            return found
        try:
            return json.loads(found)  # the server did not declare it as JSON
        except (ValueError, RecursionError):
            raise ServerError(f"no JSON in {found[:SHOWN]!r}") from None


class _Peer:
    """The shared state of all calls to a server with one key and limit, in the background loop."""

    def __init__(self, loop: int, url: str, key: str, bound: int) -> None:
        import openai

        self.places = asyncio.Semaphore(bound)
        self.line = CallQueue(f"{url}, asked by {bound} at once,")
        try:
            self.client = openai.AsyncOpenAI(base_url=url, api_key=key or "none")
        except (ValueError, openai.OpenAIError) as error:
            raise ServerError(f"{type(error).__name__}: {error}") from None


#: By event loop (one per process), server, key and limit; there are few.
_peer = cache(_Peer)
