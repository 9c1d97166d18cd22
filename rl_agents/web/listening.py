"""A server on an existing event loop: it listens before it yields its address, and does not handle signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

#: Seconds that open connections have to finish when the server ends.
GRACE_S = 5


class _Server(uvicorn.Server):
    """Leaves signals to its program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def listening(app: Any, host: str, port: int, name: str) -> AsyncIterator[str]:
    """Serve an ASGI application on the current event loop and yield its address.

    Args:
        port: 0 takes a free one.
        name: of the server's task.

    Raises:
        OSError: the address cannot be used.
    """
    # Its own log_config would close every handler that the program has made so far.
    config = uvicorn.Config(
        app, log_config=None, log_level="warning", access_log=False, lifespan="off", timeout_keep_alive=65,
        timeout_graceful_shutdown=GRACE_S, backlog=2048,
    )  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Asyncio sets TCP_NODELAY only if the protocol is named; without it answers take 40 ms longer.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        server = _Server(config)
        task = asyncio.create_task(server.serve([listener]), name=name)
        try:
            while not server.started and not task.done():
                await asyncio.sleep(0.001)
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await task
