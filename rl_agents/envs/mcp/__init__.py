"""Tools of MCP servers: a user's own tools and tasks, to evaluate and train agents with."""

from __future__ import annotations

from rl_agents.envs.mcp.env import McpEnv, make
from rl_agents.envs.mcp.tasks import task_ids

__all__ = ["McpEnv", "make", "task_ids"]
