"""The file of MCP servers: what it may say, and what is said about a bad one."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl_agents.errors import InputError
from rl_agents.tools.mcp_servers import ServerSpec, read_servers


def written(folder: Path, data: Any) -> Path:
    path = folder / "servers.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def test_both_forms_are_read_and_variables_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_TOKEN", "abc")
    servers = {
        "files": {"command": "python", "args": ["s.py", "$HOME"], "env": {"A": "1"}, "cwd": "x", "type": "stdio"},
        "web": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer ${THE_TOKEN}"}, "type": "http"},
    }
    assert read_servers(written(tmp_path, {"mcpServers": servers})) == (
        ServerSpec("files", "python", ("s.py", "$HOME"), {"A": "1"}, "x"),
        ServerSpec("web", url="http://127.0.0.1:1/mcp", headers={"Authorization": "Bearer abc"}),
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"mcpServers": {}}, "with 1 to 32 servers"),
        ({"mcpServers": {"a": "x"}}, "server 'a' needs either 'command' or 'url'"),
        ({"mcpServers": {"a": {"command": "x", "arg": []}}}, "unknown key of server 'a' 'arg': did you mean 'args'"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, "server 'a': args: "),
        ({"mcpServers": {"a": {"command": "x", "type": "http"}}}, "type 'http' does not fit"),
        ({"mcpServers": {"a": {"url": "file:///x"}}}, "server 'a': url: "),
        ({"mcpServers": {"a": {"command": "${NO_SUCH_NAME}"}}}, "environment variable NO_SUCH_NAME is not set"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "the key 'a' occurs twice"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, data: Any, problem: str) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputError) as caught:
        read_servers(path)
    assert problem in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_servers(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="not UTF-8"):
        read_servers(tmp_path / "bytes.json")
    with pytest.raises(InputError, match="larger than"):
        read_servers(written(tmp_path, " " * 2_000_000))
