"""The registry entry and the keys of movie_recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class MovieRecommendationOptions(PromptKey):
    """Keys of movie_recommendation; see docs/environments/active_reasoning.md."""

    size: Literal["paper", "small"] = key("paper", "size of a session: the paper's, or that of the warm-start model")


SPEC = EnvSpec(
    name="movie_recommendation",
    summary="learn a hidden preference from pairwise questions, then recommend an unseen movie",
    reference="T3, appendix C.1 (MovieRecommendation)",
    options=MovieRecommendationOptions,
    max_turns=5,
    progress_window=2,
    blocking="inline",
)
