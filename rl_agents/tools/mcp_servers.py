"""The file that names MCP servers, in the form that clients share:

    {"mcpServers": {"files": {"command": "python", "args": ["server.py"], "env": {"ROOT": "data"}, "cwd": "tools"},
                    "search": {"url": "http://127.0.0.1:8000/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}}}

A server with ``command`` is started and spoken to over its standard input and output, one with ``url`` over streamable
HTTP. ``${NAME}`` stands for an environment variable, so that no secret has to be in the file. Paths are relative to
where the program was started.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError, unknown
from rl_agents.tools.strict_json import strict_json

MAX_FILE_BYTES = 1 << 20
MAX_SERVERS = 32
STDIO_KEYS, HTTP_KEYS = ("command", "args", "env", "cwd", "type"), ("url", "headers", "type")
#: What ``type`` may say; it is optional, as the other keys tell.
STDIO_TYPES, HTTP_TYPES = ("stdio",), ("http", "streamable-http", "streamableHttp")

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server: a command to start, or an address.

    Attributes:
        env: variables of the command, besides the few that every program needs (``PATH``, ``HOME``, ...): it inherits
            no others.
    """

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def read_servers(path: Path) -> tuple[ServerSpec, ...]:
    """Read a file of servers.

    Raises:
        InputError: the file cannot be read, or what is wrong with a server in it.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        data = strict_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    servers = data.get("mcpServers") if isinstance(data, dict) else None
    if not isinstance(servers, dict) or not 1 <= len(servers) <= MAX_SERVERS:
        raise InputError(f'{path}: no {{"mcpServers": {{NAME: {{...}}}}}} with 1 to {MAX_SERVERS} servers in it')
    try:
        return tuple(_server(name, entry) for name, entry in servers.items())
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def _server(name: str, entry: Any) -> ServerSpec:
    where = f"server {name[:80]!a}"
    if not _NAME.fullmatch(name):
        raise ValueError(f"{where}: a name has 1 to 64 letters, digits, dots, dashes and underscores")
    if not isinstance(entry, dict) or ("command" in entry) == ("url" in entry):
        raise ValueError(f"{where} needs either 'command' or 'url'")
    keys, types = (STDIO_KEYS, STDIO_TYPES) if "command" in entry else (HTTP_KEYS, HTTP_TYPES)
    for key in entry:
        if key not in keys:
            raise unknown(f"key of {where}", key[:80], keys)
    if entry.get("type", types[0]) not in types:
        raise ValueError(f"{where}: type {entry['type']!a:.80} does not fit its keys; valid: {', '.join(types)}")
    args = entry.get("args", [])
    if not isinstance(args, list):
        raise ValueError(f"{where}: args is {type(args).__name__}, not a list of texts")
    url = _text(entry.get("url", ""), f"{where}: url", may_be_empty="url" not in entry)
    if url and not url.startswith(("http://", "https://")):
        raise ValueError(f"{where}: url is {url[:80]!a}; it begins with http:// or https://")
    return ServerSpec(
        name,
        _text(entry.get("command", ""), f"{where}: command", may_be_empty="command" not in entry),
        tuple(_text(arg, f"{where}: an item of args", may_be_empty=True) for arg in args),
        _texts(entry.get("env", {}), f"{where}: env"),
        _text(entry.get("cwd", ""), f"{where}: cwd", may_be_empty="cwd" not in entry),
        url,
        _texts(entry.get("headers", {}), f"{where}: headers"),
    )


def _texts(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is {type(value).__name__}, not an object of texts")
    return {key: _text(item, f"{what} '{key[:80]}'", may_be_empty=True) for key, item in value.items()}


def _text(value: Any, what: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or "\0" in value or not (value or may_be_empty):
        raise ValueError(f"{what} is {ascii(value)[:80]}, not a text")

    def variable(match: re.Match[str]) -> str:
        if match[1] not in os.environ:
            raise ValueError(f"{what} needs the environment variable {match[1]}, which is not set")
        return os.environ[match[1]]

    return _VARIABLE.sub(variable, value)
