"""Who holds the connections to MCP servers: all environments of a process together, or each its own."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from rl_agents.data.tables import fingerprint
from rl_agents.envs.mcp.spec import McpOptions
from rl_agents.errors import InputError
from rl_agents.tools.mcp_client import McpClient
from rl_agents.tools.mcp_servers import read_servers

_Key = tuple[str, float, float, int]


@dataclass(slots=True)
class _Shared:
    client: McpClient
    users: int = 0


_shared: dict[_Key, _Shared] = {}
_lock = threading.Lock()


class Connection:
    """An environment's hold on the servers of a file; they end when the last one that shares them lets go.

    They begin to start at once; await `client.opened()` for them.

    Raises:
        InputError: see `read_servers`; or the SDK is missing.
    """

    def __init__(self, options: McpOptions) -> None:
        path = Path(options.servers).expanduser()
        limits = options.call_timeout_s, options.start_timeout_s, options.call_concurrency
        self._key: _Key | None = None
        if options.share == "environment":
            self.client = McpClient(read_servers(path), *limits)
            return
        self._key = (fingerprint([path]), *limits)
        with _lock:
            if self._key not in _shared:
                _shared[self._key] = _Shared(McpClient(read_servers(path), *limits))
            _shared[self._key].users += 1
            self.client = _shared[self._key].client

    def close(self) -> None:
        """Let go."""
        if self._key is None:
            self.client.close()
            return
        with _lock:
            shared, key, self._key = _shared[self._key], self._key, None
            shared.users -= 1
            if not shared.users:
                del _shared[key]
                shared.client.close()


def check_servers(servers: str) -> None:
    """Raise `InputError` for a file of servers that cannot be used; none of them is started."""
    if not servers:
        raise InputError('environment mcp needs env.servers=FILE, a JSON file {"mcpServers": {NAME: {...}}}')
    read_servers(Path(servers).expanduser())
