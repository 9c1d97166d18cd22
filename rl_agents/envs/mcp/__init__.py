"""What the registry knows about mcp, and its keys."""

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
    test_tasks: str = key("", "table of test questions; empty takes a tenth of the tasks", needs="tasks")
    tools: list[str] = key([], "names of the tools that the agent is given; empty for all")
    share: Literal["process", "environment"] = key(
        "process", "who uses the same servers: the environments of a process, or each its own, for tools with a state"
    )
    call_timeout_s: float = key(20.0, "seconds that a call may take; then the agent receives an error", gt=0)
    call_concurrency: int = key(
        64,
        "calls of one server under way at the same time, of those who share it; others wait",
        ge=1,
        le=4096,
    )
    reward: Literal["em", "f1"] = key("em", "normalized exact match, 0 or 1, or F1 over words")


SPEC = EnvSpec(
    name="mcp",
    summary="answer questions with the tools of your own MCP servers",
    reference="Model Context Protocol (modelcontextprotocol.io)",
    blocking="inline",  # coroutines
    options=McpOptions,
    max_turns=8,
    progress_window=3,
)
