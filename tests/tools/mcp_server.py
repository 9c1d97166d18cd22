"""An MCP server that misbehaves on demand: real, on the official SDK, over standard input and output or HTTP."""

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("misbehaving")
CALLS: list[str] = []
WAITING = [0]


@server.tool()
def echo(text: str, times: int = 1) -> str:
    """Say a text some times."""
    CALLS.append(text)
    return text * times


@server.tool()
def calls() -> int:
    """Count the calls of echo since the server was started."""
    return len(CALLS)


@server.tool()
def refuse(reason: str) -> str:
    """Fail with a reason."""
    raise ToolError(reason)


@server.tool()
async def wait(seconds: float) -> str:
    """Answer late."""
    import asyncio

    WAITING.append(WAITING[-1] + 1)
    try:
        await asyncio.sleep(seconds)
    finally:
        WAITING.append(WAITING[-1] - 1)
    return "at last"


@server.tool()
def most_waiting() -> int:
    """Say how many waited at the same time, at most."""
    return max(WAITING)


@server.tool()
def die(marker: str) -> str:
    """End the process, once: not when the marker file is there already. An empty marker always ends it."""
    if marker and Path(marker).exists():
        return "alive"
    if marker:
        Path(marker).touch()
    print("about to die", file=sys.stderr, flush=True)
    os._exit(3)


@server.tool()
def variable(name: str) -> str:
    """Return an environment variable of the server."""
    return os.environ.get(name, "(not set)")


@server.tool()
def parts() -> list[str]:
    """Return several parts."""
    return ["one", "two"]


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "broken":
        print("no configuration found", file=sys.stderr, flush=True)
        sys.exit(1)
    if mode == "silent":
        time.sleep(60)
    if mode == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
