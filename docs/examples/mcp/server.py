"""A small MCP server to try the environment `mcp` with: an address book and a calculator for sums.

python docs/examples/mcp/server.py                  # over standard input and output
python docs/examples/mcp/server.py --http 8000      # over HTTP, at http://127.0.0.1:8000/mcp
"""

from __future__ import annotations

import argparse

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

CITIES = {"Ada": "Rome", "Ben": "Oslo", "Cleo": "Lima", "Dan": "Kyiv"}

server = MCPServer("address book")


@server.tool()
def city_of(name: str) -> str:
    """Return the city in which a person lives."""
    if name not in CITIES:
        raise ToolError(f"nobody is called {name}; known: {', '.join(CITIES)}")
    return CITIES[name]


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, metavar="PORT")
    port = parser.parse_args().http
    if port is None:
        server.run()
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)
