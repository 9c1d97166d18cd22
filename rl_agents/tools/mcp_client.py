"""A client of MCP servers (Model Context Protocol), whose tools can be awaited on any event loop.

It uses the official SDK (``pip install -e '.[mcp]'``). Each server has a task in the background loop
(`rl_agents.background`) that opens and closes its connection. A started server's process ends with its connection.
Servers' messages are text, and nothing in them is evaluated.

The SDK's `ClientSessionGroup` opens and closes all its servers in one task and does not notice a dead one. Therefore
each server has its own SDK `Client` here.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from rl_agents.background import begin, elsewhere
from rl_agents.errors import InputError
from rl_agents.installation import pip_install
from rl_agents.queues import CallQueue, queued
from rl_agents.tools.calls import Tool, read_tool
from rl_agents.tools.mcp_servers import ServerSpec
from rl_agents.tools.toolbox import ToolError

MAX_MESSAGE, MAX_TOOLS, MAX_PAGES = 300, 512, 100
HTTP_TIMEOUT_S = CLOSE_TIMEOUT_S = 15.0
#: Seconds beyond a call's own limit, for the SDK's work around it.
GRACE_S = 10.0


class McpServerError(Exception):
    """A server failed, and so did its replacement; the message names server and tool."""


class Unreachable(Exception):
    """A server does not start or answer; the message has the reason."""


class StderrTail:
    """The end of a server's standard error output, for messages; the rest is dropped."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        self.file = os.fdopen(writing, "w", encoding="utf-8")
        self._end = b""
        threading.Thread(target=self._read, args=(reading,), name="mcp-stderr", daemon=True).start()

    def close(self) -> None:
        """Close this side; the reader ends when the server's processes have closed theirs."""
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
    """Return the SDK's transport to a server; a process's standard error goes to ``said``."""
    if spec.url:
        return _http(spec)
    from mcp import StdioServerParameters, stdio_client

    # It logs a traceback for every line that is no message; relevant problems are raised as errors.
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

    timeout = httpx2.Timeout(HTTP_TIMEOUT_S, read=None)  # the session limits the time of a call
    async with (
        httpx2.AsyncClient(headers=dict(spec.headers), timeout=timeout) as http,
        streamable_http_client(spec.url, http_client=http) as streams,
    ):
        yield streams


class Link:
    """The connection to one server. All methods run in the background loop.

    If a server dies, all its running calls fail. They are repeated on a new one, one after the other and each alone, so
    that a call that kills its server does not make others fail.
    """

    def __init__(self, spec: ServerSpec, start_timeout_s: float, concurrency: int) -> None:
        self.spec, self._timeout_s, self._concurrency = spec, start_timeout_s, concurrency
        self._places, self._repeats, self._lock = asyncio.Semaphore(concurrency), asyncio.Lock(), asyncio.Lock()
        self._line = CallQueue(f"MCP server '{spec.name}', asked by {concurrency} at once,")
        self._session: Any = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.stderr_tail: StderrTail | None = None

    async def call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> Any:
        """Call a tool. If the server has died, it is started (or connected to) again, and the call is repeated once.

        Returns:
            The result of the SDK's session.

        Raises:
            McpServerError: the server died again.
            Unreachable: it cannot be reached any more.
            Exception: other errors of the SDK.
        """
        longest_s = timeout_s + GRACE_S + CLOSE_TIMEOUT_S + self._timeout_s
        for places in (1, self._concurrency):
            async with contextlib.AsyncExitStack() as held:
                with queued(self._line, longest_s):
                    if places > 1:
                        await held.enter_async_context(self._repeats)
                    for _ in range(places):
                        await held.enter_async_context(self._places)
                self._line.moves()
                session = await self.session()
                try:
                    async with asyncio.timeout(timeout_s + GRACE_S):  # a server that reads nothing counts as dead
                        return await session.call_tool(name, dict(arguments), timeout_s)
                except Exception as error:
                    if not _is_lost(error):
                        raise
                    await self.close(session)
                    lost = error
        raise McpServerError(f"it died twice: {message_of(lost)}{self.stderr_tail}") from lost

    async def open_and_list(self) -> list[Any]:
        """Connect and return the server's tools.

        Raises:
            Unreachable: it cannot be reached, or lists no tools.
        """
        session = await self.session()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await _listed(session)
        except Exception as error:
            raise Unreachable(f"it names no tools: {message_of(error)}") from error

    async def session(self) -> Any:
        """Return the open session; a dead server is started again.

        Raises:
            Unreachable: it does not start.
        """
        async with self._lock:
            if self._session is None:
                await self._close()
                await self._open()
            return self._session

    async def close(self, session: Any = None) -> None:
        """End the session and the server's process, unless another session than ``session`` is open by now."""
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
        """Keep the connection open. The SDK requires that the task that opened it also closes it."""
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


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool, its server, and its name there; ``tool.name`` is its name for the agent."""

    tool: Tool
    server: str
    name: str


class McpClient:
    """Connections to several servers, which are opened concurrently from the start; `opened` waits for them.

    Args:
        call_timeout_s: time limit of one call, in seconds.
        start_timeout_s: seconds until a server must have listed its tools.
        concurrency: number of concurrent calls of one server; further calls wait.

    Raises:
        InputError: the SDK is missing.
    """

    def __init__(
        self,
        servers: Sequence[ServerSpec],
        call_timeout_s: float = 20.0,
        start_timeout_s: float = 30.0,
        concurrency: int = 64,
    ) -> None:
        require_sdk()
        self._call_timeout_s, self._start_timeout_s, self._closed = call_timeout_s, start_timeout_s, False
        self._calls: set[asyncio.Task[Any]] = set()
        atexit.register(self.close)
        self._links = {spec.name: Link(spec, start_timeout_s, concurrency) for spec in servers}
        self._opening = begin(self._open_all())

    async def opened(self) -> Self:
        """Wait for the servers. A caller that stops waiting does not stop them for others.

        Raises:
            InputError: a server cannot be reached or lists no usable tools; then the client is closed.
        """
        try:
            await asyncio.shield(asyncio.wrap_future(self._opening))
        except Exception:
            await asyncio.to_thread(self.close)
            raise
        return self

    @property
    def tools(self) -> tuple[McpTool, ...]:
        return self._opening.result(0)

    async def ask(self, tool: McpTool, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return its result as text; see `Link.call`.

        Raises:
            ToolError: the tool failed, refused its arguments or took too long.
            McpServerError: the server died twice, or cannot be reached any more.
        """
        return await elsewhere(self._call(tool, dict(arguments)))

    def close(self) -> None:
        """Close the connections and end the started processes. A second call has no effect."""
        atexit.unregister(self.close)
        with contextlib.suppress(Exception):
            begin(self._close_all()).result(CLOSE_TIMEOUT_S)

    async def _open_all(self) -> tuple[McpTool, ...]:
        links = list(self._links.values())
        try:
            async with asyncio.timeout(self._start_timeout_s + GRACE_S + CLOSE_TIMEOUT_S):
                found = await asyncio.gather(*(link.open_and_list() for link in links), return_exceptions=True)
        except TimeoutError:
            raise InputError(f"MCP servers {', '.join(self._links)}: no tools named in time") from None
        listed = []
        for link, outcome in zip(links, found, strict=True):
            if isinstance(outcome, Unreachable):
                raise InputError(f"MCP server '{link.spec.name}' cannot be used: {outcome}") from outcome
            if isinstance(outcome, BaseException):
                raise outcome
            listed.append((link.spec.name, outcome))
        return name_tools(listed)

    async def _close_all(self) -> None:
        self._closed = True
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await asyncio.gather(*(link.close() for link in self._links.values()), return_exceptions=True)

    async def _call(self, tool: McpTool, arguments: dict[str, Any]) -> str:
        link, task = self._links[tool.server], asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return result_text(await link.call(tool.name, arguments, self._call_timeout_s))
        except ToolError:
            raise
        except Unreachable as error:
            problem = f"it cannot be reached any more: {error}"
        except McpServerError as error:
            problem = str(error)
        except Exception as error:
            raise ToolError(self._failure(tool, error)) from error
        except asyncio.CancelledError:
            if not self._closed:
                raise
            problem = "the client was closed"
        finally:
            self._calls.discard(task)
        raise McpServerError(f"MCP server '{tool.server}', asked for '{tool.name}': {problem}")

    def _failure(self, tool: McpTool, error: Exception) -> str:
        if timed_out(error):
            return f"tool '{tool.name}' of server '{tool.server}' did not answer within {self._call_timeout_s:g} s"
        return f"tool '{tool.name}' of server '{tool.server}' failed: {message_of(error)}"


def require_sdk() -> None:
    """Raise `InputError` if the SDK is missing or too old."""
    try:
        from mcp import Client  # noqa: F401
    except ImportError as error:
        raise InputError(f"MCP servers need the official SDK: pip install {pip_install('mcp')} (mcp>=2)") from error


def name_tools(found: Sequence[tuple[str, Sequence[Any]]]) -> tuple[McpTool, ...]:
    """Read servers' lists of tools; a name that several servers have is prefixed with its server's name.

    Raises:
        InputError: a definition that cannot be used.
    """
    names = [tool.name for _, tools in found for tool in tools]
    read = []
    for server, tools in found:
        for tool in tools:
            name = tool.name if names.count(tool.name) == 1 else f"{server}__{tool.name}"
            data = {"name": name, "description": tool.description or "", "parameters": tool.input_schema}
            try:
                read.append(McpTool(read_tool(data), server, tool.name))
            except ValueError as error:
                raise InputError(f"MCP server '{server}': {error}") from None
    return tuple(read)


def result_text(result: Any) -> str:
    """Return a tool's result as text, with a note for each part that is no text.

    Raises:
        ToolError: the tool reports an error.
    """
    parts = [_part_text(part) for part in result.content]
    if not parts and result.structured_content is not None:
        parts = [json.dumps(result.structured_content, ensure_ascii=False)]
    text = "\n".join(parts)
    if result.is_error:
        raise ToolError(text or "the tool failed without a word")
    return text


def _part_text(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type == "resource" and hasattr(part.resource, "text"):
        return str(part.resource.text)
    return f"[{part.type}: {getattr(part, 'mime_type', None) or getattr(part, 'uri', 'no text')}]"
