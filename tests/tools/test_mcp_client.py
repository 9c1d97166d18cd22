"""The MCP client against real servers on the official SDK: over pipes and over HTTP, well-behaved and not."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from processes import children_running, free_port

pytest.importorskip("mcp", reason="the MCP SDK is not installed")

from rl_agents.errors import InputError
from rl_agents.tools import mcp_client
from rl_agents.tools.calls import check_call, read_response
from rl_agents.tools.mcp_client import McpClient, McpServerError, name_tools
from rl_agents.tools.mcp_servers import ServerSpec
from rl_agents.tools.toolbox import ToolError

pytestmark = pytest.mark.servers

SERVER = str(Path(__file__).with_name("mcp_server.py"))
STDIO = ServerSpec("home", sys.executable, (SERVER,), {"SHOWN": "yes"})


def servers_running() -> list[int]:
    return children_running(SERVER)


def call(client: McpClient, tool: str, /, **arguments: Any) -> str:
    return asyncio.run(client.ask(next(known for known in client.tools if known.tool.name == tool), arguments))


def opened(client: McpClient) -> McpClient:
    return asyncio.run(client.opened())


@contextmanager
def http_server() -> Iterator[tuple[ServerSpec, subprocess.Popen[bytes]]]:
    port = free_port()
    process = subprocess.Popen([sys.executable, SERVER, "http", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(2400):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield ServerSpec("away", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Test": "1"}), process
    finally:
        process.kill()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def home() -> Iterator[McpClient]:
    client = opened(McpClient([STDIO], call_timeout_s=60.0))
    yield client
    client.close()
    assert not servers_running()


def test_tools_are_listed_and_called(home: McpClient) -> None:
    echo = next(tool for tool in home.tools if tool.name == "echo")
    assert echo.server == "home" and echo.tool.description == "Say a text some times."
    assert echo.tool.parameters["required"] == ["text"]
    bad = read_response('<tool_call>{"name": "echo", "arguments": {"text": 3}}</tool_call>').calls[0]
    assert "3 is not of type 'string'" in check_call(bad, [echo.tool])
    assert call(home, "echo", text="hé", times=2) == "héhé"
    assert call(home, "parts") == "one\ntwo"
    with pytest.raises(ToolError, match="the shop is closed"):
        call(home, "refuse", reason="the shop is closed")
    with pytest.raises(ToolError, match="times"):
        call(home, "echo", text="x", times="many")
    assert call(home, "variable", name="SHOWN") == "yes"
    assert "PYTEST_CURRENT_TEST" in os.environ and call(home, "variable", name="PYTEST_CURRENT_TEST") == "(not set)"


def ask_all(client: McpClient, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What came of calls at once: texts or errors."""
    tools = {tool.tool.name: tool for tool in client.tools}

    async def asked() -> list[Any]:
        works = (client.ask(tools[name], arguments) for name, arguments in calls)
        return await asyncio.gather(*works, return_exceptions=True)

    return asyncio.run(asked())


def test_many_calls_wait_side_by_side_as_far_as_the_bound_goes() -> None:
    with closing(opened(McpClient([STDIO], concurrency=40))) as client:
        assert ask_all(client, *[("wait", {"seconds": 2.0})] * 60) == ["at last"] * 60
        assert 20 < int(call(client, "most_waiting")) <= 40


def test_cancelled_calls_leave_the_client_usable() -> None:
    """Those that ran, and those that waited for a place."""
    before = servers_running()

    async def impatient(client: McpClient) -> str:
        async with asyncio.timeout(0.3):
            return await client.ask(next(tool for tool in client.tools if tool.tool.name == "wait"), {"seconds": 1.0})

    async def asked(client: McpClient) -> list[Any]:
        return await asyncio.gather(*(impatient(client) for _ in range(12)), return_exceptions=True)

    with closing(opened(McpClient([STDIO], concurrency=4))) as client:
        assert all(isinstance(found, TimeoutError) for found in asyncio.run(asked(client)))
        assert ask_all(client, *[("echo", {"text": "x"})] * 12) == ["x"] * 12
        assert len(servers_running()) == len(before) + 1, "the server was not started again for it"


def test_a_server_that_dies_is_started_once_and_takes_no_other_call_with_it(tmp_path: Path) -> None:
    before, wait = servers_running(), ("wait", {"seconds": 0.3})
    with closing(opened(McpClient([STDIO]))) as client:
        call(client, "echo", text="x")
        once, always = (
            ask_all(client, *[wait] * 6, ("die", {"marker": marker}), *[wait] * 2)
            for marker in (str(tmp_path / "died"), "")
        )
        assert once == [*["at last"] * 6, "alive", *["at last"] * 2]
        assert call(client, "calls") == "0"  # the new one has heard nothing
        assert len(servers_running()) == len(before) + 1
        guilty = always.pop(6)
        assert isinstance(guilty, McpServerError) and always == ["at last"] * 8
        assert re.search("'home', asked for 'die': it died twice: .*about to die", str(guilty))
        assert call(client, "echo", text="again") == "again"
    assert servers_running() == before


def test_a_client_that_is_closed_lets_nobody_wait() -> None:
    client = opened(McpClient([STDIO]))
    found: list[Any] = []

    def waiting() -> None:
        try:
            call(client, "wait", seconds=50)
        except McpServerError as error:
            found.append(str(error))

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    while call(client, "most_waiting") == "0":
        time.sleep(0.01)
    client.close()
    thread.join(60)
    assert found == ["MCP server 'home', asked for 'wait': the client was closed"]


def test_http_servers() -> None:
    with http_server() as (spec, process), closing(opened(McpClient([spec], call_timeout_s=3.0))) as client:
        assert call(client, "echo", text="x") == "x"
        with pytest.raises(ToolError, match="tool 'wait' of server 'away' did not answer within 3 s"):
            call(client, "wait", seconds=30)
        assert call(client, "echo", text="on") == "on"
        process.kill()
        process.wait(timeout=60)
        with pytest.raises(McpServerError, match="server 'away', asked for 'echo': it cannot be reached any more"):
            call(client, "echo", text="x")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (ServerSpec("s", "no-such-command"), r"MCP server 's' cannot be used: .*No such file or directory"),
        (ServerSpec("s", sys.executable, (SERVER, "broken")), r"cannot be used: .*it wrote: no configuration found"),
        (ServerSpec("s", sys.executable, (SERVER, "silent")), "cannot be used: no answer within 1 s"),
        (ServerSpec("s", "echo", ("hello",)), "MCP server 's' cannot be used"),
        (ServerSpec("s", url="http://127.0.0.1:9/mcp"), "cannot be used: All connection attempts failed"),
    ],
)
def test_a_server_that_does_not_start_is_one_line(spec: ServerSpec, problem: str) -> None:
    def clients() -> int:
        return sum(thread.name == "mcp-client" for thread in threading.enumerate())

    before = servers_running(), clients()
    with pytest.raises(InputError, match=problem):
        opened(McpClient([spec], start_timeout_s=1.0 if "silent" in spec.args else 120.0))
    assert (servers_running(), clients()) == before


def test_a_missing_sdk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(InputError, match=r"pip install -e '\.\[mcp\]'"):
        McpClient([STDIO])


class Listed:
    """A definition as the SDK gives it."""

    def __init__(self, name: str, schema: Any) -> None:
        self.name, self.description, self.input_schema = name, None, schema


def test_names_and_results_of_tools() -> None:
    found = name_tools([("a", [Listed("find", {}), Listed("add", {})]), ("b", [Listed("find", {})])])
    assert [(tool.tool.name, tool.server, tool.name) for tool in found] == [
        ("a__find", "a", "find"), ("add", "a", "add"), ("b__find", "b", "find"),
    ]  # fmt: skip
    with pytest.raises(InputError, match="MCP server 'a': tool 'x': parameters is no JSON schema"):
        name_tools([("a", [Listed("x", {"type": "objekt"})])])
    with pytest.raises(InputError, match="MCP server 'a': a tool definition without a usable name"):
        name_tools([("a", [Listed("x y", {})])])
    from mcp_types import CallToolResult, ImageContent, TextContent

    image = ImageContent(type="image", data="QUJD", mime_type="image/png")
    result = CallToolResult(content=[TextContent(type="text", text="see"), image])
    assert mcp_client.result_text(result) == "see\n[image: image/png]"
    assert mcp_client.result_text(CallToolResult(content=[], structured_content={"a": 1})) == '{"a": 1}'
    with pytest.raises(ToolError, match="without a word"):
        mcp_client.result_text(CallToolResult(content=[], is_error=True))
