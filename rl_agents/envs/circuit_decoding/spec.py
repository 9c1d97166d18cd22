"""What the registry knows about circuit_decoding."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="circuit_decoding",
    summary="identify hidden Boolean circuits among candidates by querying them",
    reference="T3, appendix C.1 (CircuitDecoding)",
    module="rl_agents.envs.circuit_decoding",
    gym_id="rl_agents/CircuitDecoding-v0",
    options={
        "circuits": 2,
        "candidates": 10,
        "prompt": "paper",
        "malformed": "retry",
        "reward": "exact",
        "max_turns": 10,
    },
    max_turns=10,
    progress_window=3,
)
