"""What the registry knows about movie_recommendation."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="movie_recommendation",
    summary="learn a hidden preference from pairwise questions, then recommend an unseen movie",
    reference="T3, appendix C.1 (MovieRecommendation)",
    module="rl_agents.envs.movie_recommendation",
    gym_id="rl_agents/MovieRecommendation-v0",
    options={
        "attributes": 5,
        "seen": 10,
        "unseen": 10,
        "score_levels": 11,
        "weight_levels": 11,
        "sampling": "uniform",
        "prompt": "paper",
        "malformed": "retry",
        "progress": "similarity",
        "movement_window": 4,
        "movement_threshold": 0.28,
        "max_turns": 5,
    },
    max_turns=5,
    progress_window=2,
)
