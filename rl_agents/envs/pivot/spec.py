"""What the registry knows about pivot."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="pivot",
    summary="one turn from a state of an expert trace; a verifier compares it with what the expert did",
    reference="PivotRL (arXiv 2603.21383), section 3.1",
    module="rl_agents.envs.pivot",
    gym_id="rl_agents/Pivot-v0",
    options={
        "pivots": "",
        "test_share": 0.1,
        "verifier": "tool_call",
        "threshold": -1.0,
        "parallel": "strict",
        "similarity": -1.0,
        "edit_credit": "binary",
        "judge_url": "",
        "judge_model": "",
        "judge_key_env": "",
        "judge_timeout_s": 20.0,
        "judge_retries": 1,
    },
    max_turns=1,
)
