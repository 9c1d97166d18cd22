"""Pivot: single turns from the states of expert traces (PivotRL, section 3.1)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.pivot.env import PivotEnv, make
from rl_agents.envs.pivot.tasks import task_ids

__all__ = ["STARTER", "PivotEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; scoring turns needs neither.
    if name == "STARTER":
        from rl_agents.envs.pivot.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
