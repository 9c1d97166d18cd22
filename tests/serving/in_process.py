"""A server without Ray: the real service, HTTP application and torch engine, on one event loop of this process."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx

from rl_agents.serving.app import engine_settings
from rl_agents.serving.options import ServingOptions
from rl_agents.serving.policy import PolicyReplica
from rl_agents.serving.service import Service
from rl_agents.serving.source import find_checkpoint, served_settings
from rl_agents.web.security import Keys


class Server:
    """A checkpoint, served; `request` is what a client's call is."""

    def __init__(self, checkpoint: Path, keys: Keys | None = None, **data: Any) -> None:
        self.options, run_keys = ServingOptions.read({"checkpoint": str(checkpoint), "drain_s": 0.2, **data})
        self.checkpoint = find_checkpoint(checkpoint)
        self.kind = self.options.engine if self.options.engine != "auto" else "torch"
        self.settings = served_settings(self.checkpoint, {**run_keys, "engine": self.kind})
        self.runner = asyncio.Runner()
        self.run(self._build(keys or Keys()))

    async def _build(self, keys: Keys) -> None:
        engine = engine_settings(self.options, self.settings, self.checkpoint)
        self.policy = PolicyReplica(engine, self.options, self.checkpoint)
        self.service = Service(self.options, self.settings, self.checkpoint, self.policy, self.kind)
        transport = httpx.ASGITransport(self.service.app(keys))
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the server's loop."""
        return self.runner.run(work)

    def request(self, method: str, path: str, json: Any = None, **options: Any) -> httpx.Response:
        """Make one HTTP request."""
        return self.run(self.client.request(method, path, json=json, **options))

    def chat(self, **fields: Any) -> httpx.Response:
        """Ask with one user message."""
        body = {"model": self.service.model()["id"], "messages": [{"role": "user", "content": "hello"}]}
        return self.request("POST", "/v1/chat/completions", {**body, **fields})

    def close(self) -> None:
        self.run(self.service.sessions.close_all())
        self.runner.close()


def problem(response: httpx.Response) -> tuple[int, str, str]:
    """Status, code and message of an error; every error has the same form."""
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and "\n" not in error["message"]
    return response.status_code, error["code"], error["message"]
