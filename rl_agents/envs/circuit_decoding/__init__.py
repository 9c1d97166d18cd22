"""CircuitDecoding: identify hidden Boolean circuits among candidates (T3, appendix C.1)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.circuit_decoding.env import CircuitDecodingEnv, make
from rl_agents.envs.circuit_decoding.tasks import task_ids

__all__ = ["STARTER", "CircuitDecodingEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing the game needs neither.
    if name == "STARTER":
        from rl_agents.envs.circuit_decoding.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
