"""What the registry knows about mcp."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="mcp",
    summary="answer questions with the tools of your own MCP servers",
    reference="Model Context Protocol (modelcontextprotocol.io)",
    module="rl_agents.envs.mcp",
    gym_id="rl_agents/Mcp-v0",
    options={
        "servers": "",
        "tasks": "",
        "test_tasks": "",
        "tools": [],
        "share": "process",
        "call_timeout_s": 20.0,
        "start_timeout_s": 30.0,
        "max_calls": 4,
        "max_result_characters": 4000,
        "system": "",
        "malformed": "retry",
        "reward": "em",
        "max_turns": 8,
    },
    max_turns=8,
    progress_window=3,
)
