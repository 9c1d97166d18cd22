"""The registry's entry of mcp, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import QuestionFileKeys
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class McpOptions(QuestionFileKeys):
    """Keys of mcp; see docs/environments/mcp.md."""

    servers: str = key("", "JSON file of MCP servers")
    tasks: str = key("", "table of questions with answers: a file, a folder or hub:NAME")
    test_tasks: str = key("", "table of test questions; empty for a tenth of the tasks", needs="tasks")
    tools: list[str] = key([], "names of the agent's tools; empty for all")
    share: Literal["process", "environment"] = key(
        "process", "sharing of servers: one set per process, or one per environment for tools with a state"
    )
    call_timeout_s: float = key(20.0, "time limit of one call, in seconds; after it the agent receives an error", gt=0)
    call_concurrency: int = key(64, "concurrent calls of one server; further ones wait", ge=1, le=4096)
    reward: Literal["em", "f1"] = key("em", "reward: normalized exact match, 0 or 1, or F1 over words")


SPEC = EnvSpec(
    name="mcp",
    summary="answer questions with the tools of your own MCP servers",
    reference="Model Context Protocol (modelcontextprotocol.io)",
    blocking="inline",  # coroutines
    options=McpOptions,
    max_turns=8,
    progress_window=3,
)
