"""rl_agents: step-level reinforcement learning of LLM agents on Ray RLlib and vLLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_agents.startup import settle_ray_worker
from rl_agents.version import __version__

if TYPE_CHECKING:
    from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

settle_ray_worker()  # here, because unpickling an actor's class imports most modules

__all__ = ["AgentAlgorithm", "AgentConfig", "__version__"]


def __getattr__(name: str) -> Any:
    # Ray and torch take seconds to import; the command line reports typing errors without them.
    if name in ("AgentAlgorithm", "AgentConfig"):
        from rl_agents.trainer import algorithm

        return getattr(algorithm, name)
    raise AttributeError(f"module 'rl_agents' has no attribute '{name}'")
