"""What the registry knows about guess_numbers."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="guess_numbers",
    summary="find a secret code from feedback on guesses",
    reference="T3, appendix C.1 (GuessNumbers)",
    module="rl_agents.envs.guess_numbers",
    gym_id="rl_agents/GuessNumbers-v0",
    options={
        "subgroups": "all",
        "prompt": "paper",
        "malformed": "retry",
        "progress": "consistent",
        "max_turns": 10,
    },
    max_turns=10,
    progress_window=1,
)
