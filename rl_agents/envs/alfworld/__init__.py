"""ALFWorld: household text games, played by a native engine or by the real TextWorld."""

from __future__ import annotations

from typing import Any

# What is imported here must stay light: the engines' modules are imported through this package, too.
__all__ = ["STARTER", "AlfworldEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    if name == "STARTER":  # needs torch and transformers; playing needs neither
        from rl_agents.envs.alfworld.starter import STARTER

        return STARTER
    if name == "task_ids":
        from rl_agents.envs.alfworld.tasks import task_ids

        return task_ids
    if name in ("AlfworldEnv", "make"):
        from rl_agents.envs.alfworld import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
