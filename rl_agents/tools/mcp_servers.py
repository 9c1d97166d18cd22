"""The file that lists MCP servers, in the usual form of MCP clients:

    {"mcpServers": {"files": {"command": "python", "args": ["server.py"], "env": {"ROOT": "data"}, "cwd": "tools"},
                    "search": {"url": "http://127.0.0.1:8000/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

A server with ``command`` is started and used over its standard input and output, one with ``url`` over streamable HTTP.
``${NAME}`` is replaced by an environment variable, so that the file needs no secrets. Paths are relative to the current
folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from rl_agents.errors import InputError, unknown
from rl_agents.tools.strict_json import read_json_file

MAX_FILE_BYTES = 1 << 20
MAX_SERVERS = 32
STDIO_KEYS, HTTP_KEYS = ("command", "args", "env", "cwd", "type"), ("url", "headers", "type")
#: Values of ``type``, which is optional because the other keys imply it.
STDIO_TYPES, HTTP_TYPES = ("stdio",), ("http", "streamable-http", "streamableHttp")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _filled_in(text: str) -> str:
    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ValueError(f"the environment variable {match[1]} is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(variable, text)


Text = Annotated[str, Field(pattern=r"^[^\x00]*$"), AfterValidator(_filled_in)]
Given = Annotated[Text, Field(min_length=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ServerSpec:
    """One server: a command to start, or an address.

    Attributes:
        env: variables of the command. It inherits only the few that every program needs (``PATH``, ``HOME``, ...).
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    command: Given = ""
    args: tuple[Text, ...] = ()
    env: Mapping[str, Text] = field(default_factory=dict)
    cwd: Given = ""
    url: Annotated[Given, Field(pattern=r"^https?://")] = ""
    headers: Mapping[str, Text] = field(default_factory=dict)


def read_servers(path: Path) -> tuple[ServerSpec, ...]:
    """Read a file of servers.

    Raises:
        InputError: the file cannot be read, or a server in it is invalid.
    """
    data = read_json_file(path, MAX_FILE_BYTES)
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict) or not 1 <= len(servers) <= MAX_SERVERS:
        raise InputError(f'{path}: no {{"mcpServers": {{NAME: {{...}}}}}} with 1 to {MAX_SERVERS} servers in it')
    try:
        return tuple(_server(name, entry) for name, entry in servers.items())
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _server(name: str, entry: Any) -> ServerSpec:
    where = f"server {name[:80]!a}"
    if not isinstance(entry, dict) or ("command" in entry) == ("url" in entry):
        raise ValueError(f"{where} needs either 'command' or 'url'")
    keys, types = (STDIO_KEYS, STDIO_TYPES) if "command" in entry else (HTTP_KEYS, HTTP_TYPES)
    for key in entry:
        if key not in keys:
            raise unknown(f"key of {where}", key[:80], keys)
    if entry.get("type", types[0]) not in types:
        raise ValueError(f"{where}: type {entry['type']!a:.80} does not fit its keys; valid: {', '.join(types)}")
    try:
        return ServerSpec(name, **{key: value for key, value in entry.items() if key != "type"})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(str(part)[:80] for part in problem["loc"] if part != 0 or len(problem["loc"]) > 1)
        raise ValueError(f"{where}: {place or 'name'}: {problem['msg'].removeprefix('Value error, ')}") from None
