"""What the registry knows about movie_recommendation, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import MalformedKey, PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class SizeKeys:
    """How large a session is."""

    attributes: int = key(5, "length of the preference vector", at_least=1, at_most=16)
    seen: int = key(10, "movies to ask about", at_least=2, at_most=64)
    unseen: int = key(10, "movies to recommend from", at_least=2, at_most=64)
    score_levels: int = key(11, "number of different scores, evenly spaced in [0, 1]", at_least=2, at_most=101)
    weight_levels: int = key(11, "number of different weights, evenly spaced in [0, 1]", at_least=2, at_most=101)
    sampling: Literal["uniform", "balanced"] = key(
        "uniform",
        "scores drawn one by one, or movies whose scores add up to the same, so that none is good for everybody",
    )


@dataclass(frozen=True)
class MovieRecommendationOptions(MalformedKey, PromptKey, SizeKeys):
    """Keys of movie_recommendation; see docs/environments/active_reasoning.md."""

    progress: Literal["similarity", "movement"] = key(
        "similarity", "info['progress']: the estimate came closer to the weights (T3), or it still moves (no oracle)"
    )
    movement_window: int = key(
        4, "movements of the estimate that are averaged", at_least=1, at_most=1000, needs="progress=movement"
    )
    movement_threshold: float = key(0.28, "average below which it stalls", at_least=0, needs="progress=movement")


SPEC = EnvSpec(
    name="movie_recommendation",
    summary="learn a hidden preference from pairwise questions, then recommend an unseen movie",
    reference="T3, appendix C.1 (MovieRecommendation)",
    module="rl_agents.envs.movie_recommendation",
    gym_id="rl_agents/MovieRecommendation-v0",
    options=MovieRecommendationOptions,
    max_turns=5,
    progress_window=2,
    blocking="inline",
)
