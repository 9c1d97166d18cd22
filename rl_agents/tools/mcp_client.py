"""A client of MCP servers (Model Context Protocol): their tools, called from code that knows nothing of asyncio.

The protocol is the official SDK's (``pip install 'rl-agents[mcp]'``). One thread runs the event loop of a client; each
server has a task there that opens its connection, and closes it where it was opened. A started server's process ends
with its connection. What servers send is text to us: nothing of it is evaluated.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rl_agents.errors import InputError
from rl_agents.tools.calls import Tool, read_tool
from rl_agents.tools.mcp_servers import ServerSpec
from rl_agents.tools.mcp_transport import MAX_MESSAGE, StderrTail, open_transport
from rl_agents.tools.toolbox import ToolError

MAX_TOOLS = 512
MAX_PAGES = 100
#: Beyond a call's own limit, for what the SDK does around it.
GRACE_S = 10.0
CLOSE_TIMEOUT_S = 15.0

T = TypeVar("T")


class McpServerError(Exception):
    """A server is gone, and a new one is, too; the message names server and tool."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool, where it is, and what it is called there; ``tool.name`` is what the agent calls it."""

    tool: Tool
    server: str
    name: str


class McpClient:
    """Connections to some servers.

    Args:
        servers: which; all are connected at once.
        call_timeout_s: seconds that one call may take.
        start_timeout_s: seconds until a server must have named its tools.

    Raises:
        InputError: the SDK is missing, or a server cannot be reached or names no usable tools.
    """

    def __init__(
        self, servers: Sequence[ServerSpec], call_timeout_s: float = 20.0, start_timeout_s: float = 30.0
    ) -> None:
        require_sdk()
        self._call_timeout_s, self._start_timeout_s = call_timeout_s, start_timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mcp-client", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        self._links = {spec.name: _Link(spec, start_timeout_s) for spec in servers}
        try:
            found = self._wait(self._open_all(), start_timeout_s + GRACE_S + CLOSE_TIMEOUT_S)
            self.tools: tuple[McpTool, ...] = name_tools(found)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                raise InputError(f"MCP servers {', '.join(self._links)}: no tools named in time") from error
            raise

    def call(self, tool: McpTool, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return what it says as text.

        A server that has died is started (or connected to) once more, and the call is repeated.

        Raises:
            ToolError: the tool failed, refused its arguments or took too long.
            McpServerError: the server died again, or cannot be reached any more.
        """
        # Twice the limits: a server may die at the end of a call, and be started again.
        limit = 2 * (self._call_timeout_s + self._start_timeout_s) + GRACE_S
        try:
            return self._wait(self._call(tool, dict(arguments)), limit)
        except TimeoutError as error:
            raise McpServerError(f"MCP server '{tool.server}', asked for '{tool.name}': it hangs") from error

    def close(self) -> None:
        """Close the connections and end the processes that were started; twice does nothing."""
        atexit.unregister(self.close)
        if self._loop.is_closed():
            return
        with contextlib.suppress(Exception):
            self._wait(self._close_all(), CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(limit_s)
        except BaseException:
            future.cancel()
            raise

    async def _open_all(self) -> list[tuple[str, list[Any]]]:
        links = list(self._links.values())
        found = await asyncio.gather(*(link.open_and_list() for link in links), return_exceptions=True)
        listed = []
        for link, outcome in zip(links, found, strict=True):
            if isinstance(outcome, _Unreachable):
                raise InputError(f"MCP server '{link.spec.name}' cannot be used: {outcome}") from outcome
            if isinstance(outcome, BaseException):
                raise outcome
            listed.append((link.spec.name, outcome))
        return listed

    async def _close_all(self) -> None:
        await asyncio.gather(*(link.close() for link in self._links.values()), return_exceptions=True)

    async def _call(self, tool: McpTool, arguments: dict[str, Any]) -> str:
        link = self._links[tool.server]
        problem = ""
        for _ in range(2):
            try:
                session = await link.session()
            except _Unreachable as error:
                problem = f"it cannot be reached any more: {error}"
                break
            try:
                return result_text(await session.call_tool(tool.name, arguments, self._call_timeout_s))
            except ToolError:
                raise
            except Exception as error:
                if not _is_lost(error):
                    raise ToolError(self._failure(tool, error)) from error
                await link.close(session)
                problem = f"it died twice: {_message(error)}{link.stderr_tail}"
        raise McpServerError(f"MCP server '{tool.server}', asked for '{tool.name}': {problem}")

    def _failure(self, tool: McpTool, error: Exception) -> str:
        if _timed_out(error):
            return f"tool '{tool.name}' of server '{tool.server}' did not answer within {self._call_timeout_s:g} s"
        return f"tool '{tool.name}' of server '{tool.server}' failed: {_message(error)}"


class _Unreachable(Exception):
    """A server does not come up; the message says why."""


class _Link:
    """The connection to one server. All methods run in the client's loop."""

    def __init__(self, spec: ServerSpec, start_timeout_s: float) -> None:
        self.spec, self._timeout_s = spec, start_timeout_s
        self._lock = asyncio.Lock()
        self._session: Any = None
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.stderr_tail: StderrTail | None = None

    async def open_and_list(self) -> list[Any]:
        """Connect and return the server's tools.

        Raises:
            _Unreachable: it cannot be had, or names none.
        """
        session = await self.session()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await _listed(session)
        except Exception as error:
            raise _Unreachable(f"it names no tools: {_message(error)}") from error

    async def session(self) -> Any:
        """Return the open session; a server that is gone is started again.

        Raises:
            _Unreachable: it cannot be.
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
            reason = f"no answer within {self._timeout_s:g} s" if isinstance(error, TimeoutError) else _message(error)
            raise _Unreachable(f"{reason}{self.stderr_tail}") from error

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


def require_sdk() -> None:
    """Raise `InputError` where the SDK is missing or too old."""
    try:
        from mcp import Client  # noqa: F401
    except ImportError as error:
        raise InputError("MCP servers need the official SDK: pip install 'rl-agents[mcp]' (mcp>=2)") from error


def name_tools(found: Sequence[tuple[str, Sequence[Any]]]) -> tuple[McpTool, ...]:
    """Read what servers say about their tools; a name that several servers have gets its server's before it.

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
    """Return a tool's result as text; what is no text is named.

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


def _timed_out(error: Exception) -> bool:
    from mcp import MCPError
    from mcp_types import REQUEST_TIMEOUT

    return isinstance(error, MCPError) and error.code == REQUEST_TIMEOUT


def _message(error: BaseException) -> str:
    """Return an error's first line; of a group, that of its first member."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    lines = str(error).strip().splitlines()
    return ascii(lines[0])[1:-1][:MAX_MESSAGE] if lines else type(error).__name__
