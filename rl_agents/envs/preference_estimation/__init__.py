"""PreferenceEstimation: infer a hidden preference vector from pairwise questions (T3, appendix C.1)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.preference_estimation.env import PreferenceEstimationEnv, make
from rl_agents.envs.preference_estimation.tasks import task_ids

__all__ = ["STARTER", "PreferenceEstimationEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing the game needs neither.
    if name == "STARTER":
        from rl_agents.envs.preference_estimation.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
