"""MovieRecommendation: learn a hidden preference by asking, then recommend an unseen movie (T3, appendix C.1)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.movie_recommendation.env import MovieRecommendationEnv, make
from rl_agents.envs.movie_recommendation.tasks import task_ids

__all__ = ["STARTER", "MovieRecommendationEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing the game needs neither.
    if name == "STARTER":
        from rl_agents.envs.movie_recommendation.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
