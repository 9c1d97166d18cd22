"""How a server of the Model Context Protocol is reached: a process of ours over pipes, or an address over HTTP."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator
from typing import Any

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
