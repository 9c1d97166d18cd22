"""What the registry knows about preference_estimation."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="preference_estimation",
    summary="infer a hidden preference vector by asking which of two movies is preferred",
    reference="T3, appendix C.1 (PreferenceEstimation)",
    module="rl_agents.envs.preference_estimation",
    gym_id="rl_agents/PreferenceEstimation-v0",
    options={
        "attributes": 5,
        "movies": 10,
        "levels": 11,
        "sampling": "uniform",
        "prompt": "paper",
        "malformed": "retry",
        "reward": "binary",
        "threshold": 0.88,
        "max_turns": 10,
    },
    max_turns=10,
    progress_window=2,
)
