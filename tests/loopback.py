"""A scripted HTTP server on this machine: thousands of real connections, delays, errors and dropped connections."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests", 503: "Service Unavailable"}


@dataclass
class Reply:
    """What is answered.

    Attributes:
        drip_s: seconds between the bytes of the body.
        cut: bytes of the body after which the connection is lost; None: none.
    """

    body: bytes = b'{"ok": true}'
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    drip_s: float = 0.0
    cut: int | None = None


@dataclass
class Request:
    """A request, its time, and the number of requests in flight then, including itself."""

    number: int
    path: str
    headers: Mapping[str, str]
    body: Any
    at: float
    under_way: int


Answer = Callable[[Request], Awaitable[Reply]]


class Loopback:
    """A server in its own thread.

    Attributes:
        answer: makes a reply; may be replaced between requests.
        requests: all so far.
        connections: opened so far.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        self.connections = self._under_way = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=2048, limit=1 << 24)
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def most_under_way(self) -> int:
        return max(request.under_way for request in self.requests)

    def close(self) -> None:
        """Stop, and drop all connections, as a killed process does."""

        async def stop() -> None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                if not await self._exchange(head, reader, writer):
                    break
        self._writers.discard(writer)
        writer.close()

    async def _exchange(self, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"null")
        self._under_way += 1
        path = first.split()[1]
        request = Request(len(self.requests), path, headers, body, time.monotonic(), self._under_way)
        self.requests.append(request)
        try:
            reply = await self.answer(request)
        finally:
            self._under_way -= 1
        return await _send(writer, reply)


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    lines = [f"HTTP/1.1 {reply.status} {REASONS.get(reply.status, 'Odd')}", f"Content-Length: {len(reply.body)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    if reply.drip_s:
        for byte in reply.body:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(reply.drip_s)
    else:
        writer.write(reply.body[: reply.cut])
    await writer.drain()
    return reply.cut is None


def completion(text: str) -> bytes:
    """Return a chat completion of OpenAI's API."""
    return json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def saying(text: str | Callable[[str], Any], wait_s: float = 0.0, statuses: Sequence[int] = ()) -> Answer:
    """Reply to every prompt with a text, or with a function's result: a text, or a choice of OpenAI's API.

    Args:
        statuses: of the first replies; the others are 200.
    """
    first = iter(statuses)

    async def answer(request: Request) -> Reply:
        await asyncio.sleep(wait_s)
        said = text(request.body["messages"][0]["content"]) if callable(text) else text
        body = completion(said) if isinstance(said, str) else json.dumps({"choices": [said]}).encode()
        return Reply(body, next(first, 200))

    return answer


def together(count: int, answer: Answer) -> Answer:
    """Reply as ``answer`` does, but to nobody before so many requests are under way."""
    enough = asyncio.Event()

    async def gated(request: Request) -> Reply:
        if request.under_way >= count:
            enough.set()
        await enough.wait()
        return await answer(request)

    return gated


@contextlib.contextmanager
def loopback(answer: Answer) -> Iterator[Loopback]:
    server = Loopback(answer)
    try:
        yield server
    finally:
        server.close()
