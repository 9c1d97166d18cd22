"""A client of MCP servers (Model Context Protocol): their tools, awaited on any event loop.

The protocol is the official SDK's (``pip install -e '.[mcp]'``). One thread runs the event loop of a client; each
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
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from rl_agents.errors import InputError
from rl_agents.installation import pip_install
from rl_agents.tools.calls import Tool, read_tool
from rl_agents.tools.mcp_link import CLOSE_TIMEOUT_S, GRACE_S, Link, Lost, Unreachable, message_of, timed_out
from rl_agents.tools.mcp_servers import ServerSpec
from rl_agents.tools.toolbox import ToolError

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

    They begin to be made at once; `opened` waits until they are.

    Args:
        servers: which; all are connected at once.
        call_timeout_s: seconds that one call may take.
        start_timeout_s: seconds until a server must have named its tools.
        concurrency: calls of one server under way at the same time; others wait for their turn.

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
        self._call_timeout_s, self._start_timeout_s = call_timeout_s, start_timeout_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mcp-client", daemon=True)
        self._thread.start()
        self._closing, self._closed = threading.Lock(), False
        self._calls: set[asyncio.Task[Any]] = set()
        atexit.register(self.close)
        self._links = {spec.name: Link(spec, start_timeout_s, concurrency) for spec in servers}
        self._opening = self._begin(self._open_all())

    async def opened(self) -> Self:
        """Wait for the servers; who stops waiting leaves them to the others.

        Raises:
            InputError: a server cannot be reached or names no usable tools; the client is closed.
        """
        try:
            await asyncio.shield(asyncio.wrap_future(self._opening))
        except Exception:
            await asyncio.to_thread(self.close)
            raise
        return self

    @property
    def tools(self) -> tuple[McpTool, ...]:
        """The tools of all servers, once the client is open."""
        return self._opening.result(0)

    async def ask(self, tool: McpTool, arguments: Mapping[str, Any]) -> str:
        """Call a tool and return what it says as text.

        A server that has died is started (or connected to) again, and the call is repeated.

        Raises:
            ToolError: the tool failed, refused its arguments or took too long.
            McpServerError: the server died again, or cannot be reached any more.
        """
        return await asyncio.wrap_future(self._begin(self._call(tool, dict(arguments))))

    def close(self) -> None:
        """Close the connections and end the processes that were started; twice does nothing."""
        atexit.unregister(self.close)
        with self._closing:
            if self._loop.is_closed():
                return
            with contextlib.suppress(Exception):
                self._begin(self._close_all()).result(CLOSE_TIMEOUT_S)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_TIMEOUT_S)
            if not self._thread.is_alive():
                self._loop.close()

    def _begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

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
        except Lost as error:
            problem = f"{error}{link.stderr_tail}"
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
    """Raise `InputError` where the SDK is missing or too old."""
    try:
        from mcp import Client  # noqa: F401
    except ImportError as error:
        raise InputError(f"MCP servers need the official SDK: pip install {pip_install('mcp')} (mcp>=2)") from error


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
