"""The connection to one MCP server: opened, closed where it was opened, and opened again when the server has died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from rl_agents.queues import Line, in_line
from rl_agents.tools.mcp_servers import ServerSpec

MAX_MESSAGE = 300
HTTP_TIMEOUT_S = 10.0


class StderrTail:
    """The end of what a server writes to its standard error, for messages; the rest is forgotten."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w", encoding="utf-8")
        self._end = b""
        threading.Thread(target=self._read, args=(reading,), name="mcp-stderr", daemon=True).start()

    def close(self) -> None:
        """Close our side; the reader ends when the server's processes have closed theirs."""
        self.file.close()

    def __str__(self) -> str:
        lines = self._end.decode("utf-8", "replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f" (it wrote: {ascii(said)[1:-1][:MAX_MESSAGE]})" if said else ""

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb", buffering=0) as file:
            while chunk := file.read(4096):
                self._end = (self._end + chunk)[-4096:]


def open_transport(spec: ServerSpec, said: StderrTail) -> Any:
    """Return what the SDK's client takes; what a process writes to its standard error goes to ``said``."""
    if spec.url:
        return _http(spec)
    from mcp import StdioServerParameters, stdio_client

    # It logs a traceback for every line that is no message; what matters of that comes as an error.
    logging.getLogger("mcp.client.stdio").setLevel(logging.CRITICAL)
    server = StdioServerParameters(
        command=spec.command, args=list(spec.args), env=dict(spec.env), cwd=spec.cwd or None,
        encoding_error_handler="replace",
    )  # fmt: skip
    return stdio_client(server, errlog=said.file)


@contextlib.asynccontextmanager
async def _http(spec: ServerSpec) -> AsyncIterator[Any]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(HTTP_TIMEOUT_S, read=None)  # how long a call may take is the session's matter
    async with (
        httpx2.AsyncClient(headers=dict(spec.headers), timeout=timeout) as http,
        streamable_http_client(spec.url, http_client=http) as streams,
    ):
        yield streams


MAX_TOOLS = 512
MAX_PAGES = 100
CLOSE_TIMEOUT_S = 15.0
#: Beyond a call's own limit, for what the SDK does around it.
GRACE_S = 10.0


class Unreachable(Exception):
    """A server does not come up; the message says why."""


class Lost(Exception):
    """A server died again under the same call."""


@dataclass(eq=False, slots=True)
class _Attempt:
    """A call that is under way; ``company``: others were meanwhile."""

    company: bool = False


class Link:
    """The connection to one server. All methods run in the client's loop.

    A server that dies takes all calls with it that are under way. They are repeated; when it dies again, each that had
    company is repeated alone, so that the one that kills it is found, and no other is lost.

    Args:
        concurrency: calls under way at the same time.
    """

    def __init__(self, spec: ServerSpec, start_timeout_s: float, concurrency: int) -> None:
        self.spec, self._timeout_s, self._concurrency = spec, start_timeout_s, concurrency
        self._places = asyncio.Semaphore(concurrency)
        self._line = Line(f"MCP server '{spec.name}', asked by {concurrency} at once,")
        self._alone = asyncio.Lock()
        self._under_way: set[_Attempt] = set()
        self._lock = asyncio.Lock()
        self._session: Any = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.stderr_tail: StderrTail | None = None

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """Call a tool; a server that has died is started (or connected to) again, and the call is repeated.

        Returns:
            What the SDK's session returns.

        Raises:
            Lost: the server died again.
            Unreachable: it cannot be had any more.
            Exception: what else the SDK raises.
        """
        lost, longest_s = 0, timeout_s + GRACE_S + CLOSE_TIMEOUT_S + self._timeout_s
        while True:
            async with self._place(longest_s, alone=lost == 2) as attempt:
                session = await self.session()
                try:
                    async with asyncio.timeout(timeout_s + GRACE_S):  # one that does not even read is as good as dead
                        return await session.call_tool(name, dict(arguments), timeout_s)
                except Exception as error:
                    if not _is_lost(error):
                        raise
                    lost += 1
                    await self.close(session)
                    if lost == 3 or (lost == 2 and not attempt.company):
                        raise Lost(f"it died {('twice', 'three times')[lost - 2]}: {message_of(error)}") from error

    @contextlib.asynccontextmanager
    async def _place(self, longest_s: float, alone: bool) -> AsyncIterator[_Attempt]:
        """Wait for a place among the calls under way, or until there are none.

        Args:
            longest_s: seconds that a call may have a place.
        """
        attempt = _Attempt()
        async with contextlib.AsyncExitStack() as held:
            with in_line(self._line, longest_s):
                if alone:
                    await held.enter_async_context(self._alone)
                for _ in range(self._concurrency if alone else 1):
                    await self._places.acquire()
                    held.callback(self._places.release)
                    self._line.moves()
            for other in self._under_way:
                other.company = attempt.company = True
            self._under_way.add(attempt)
            held.callback(self._under_way.discard, attempt)
            yield attempt

    async def open_and_list(self) -> list[Any]:
        """Connect and return the server's tools.

        Raises:
            Unreachable: it cannot be had, or names none.
        """
        session = await self.session()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await _listed(session)
        except Exception as error:
            raise Unreachable(f"it names no tools: {message_of(error)}") from error

    async def session(self) -> Any:
        """Return the open session; a server that is gone is started again.

        Raises:
            Unreachable: it cannot be.
        """
        async with self._lock:
            if self._session is None:
                await self._close()
                await self._open()
            return self._session

    async def close(self, session: Any = None) -> None:
        """End the session, and the server's process; nothing when another ``session`` than the given one is open."""
        async with self._lock:
            if session is None or session is self._session:
                await self._close()

    async def _open(self) -> None:
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._closing, self.stderr_tail = asyncio.Event(), StderrTail()
        self._task = asyncio.create_task(self._run(ready, self._closing, self.stderr_tail))
        try:
            self._session = await asyncio.wait_for(ready, self._timeout_s)
        except Exception as error:
            await self._close()
            reason = f"no answer within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else message_of(error)
            raise Unreachable(f"{reason}{self.stderr_tail}") from error

    async def _run(self, ready: asyncio.Future[Any], closing: asyncio.Event, said: StderrTail) -> None:
        """Hold the connection; the SDK wants it closed in the task that opened it."""
        from mcp import Client

        try:
            async with Client(open_transport(self.spec, said), cache=None) as session:
                ready.set_result(session)
                await closing.wait()
        except Exception as error:
            if not ready.done():
                ready.set_exception(error)
        finally:
            said.close()

    async def _close(self) -> None:
        task, opened = self._task, self._session is not None
        self._task = self._session = None
        self._closing.set()
        if task is None:
            return
        if not opened:  # it may wait for a server that never answers
            task.cancel()
        done, _ = await asyncio.wait({task}, timeout=CLOSE_TIMEOUT_S)
        if not done:
            task.cancel()


async def _listed(session: Any) -> list[Any]:
    tools: list[Any] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if not cursor or len(tools) > MAX_TOOLS:
            break
    if not 1 <= len(tools) <= MAX_TOOLS:
        raise ValueError(f"{len(tools)} tools; 1 to {MAX_TOOLS} can be used")
    return tools


def _is_lost(error: Exception) -> bool:
    """Say whether an error means that the connection is gone."""
    import anyio
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    if isinstance(error, MCPError):
        return bool(error.code == CONNECTION_CLOSED)
    return isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream | OSError)


def timed_out(error: Exception) -> bool:
    from mcp import MCPError
    from mcp_types import REQUEST_TIMEOUT

    return isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT


def message_of(error: BaseException) -> str:
    """Return an error's first line; of a group, that of its first member."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = str(error).strip().splitlines()
    return ascii(lines[0])[1:-1][:MAX_MESSAGE] if lines else type(error).__name__
