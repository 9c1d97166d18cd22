"""What the registry knows about situation_puzzles."""

from __future__ import annotations

from rl_agents.envs.base import EnvSpec

SPEC = EnvSpec(
    name="situation_puzzles",
    summary="find the story behind a strange scene with yes-or-no questions",
    reference="T3, appendix C.1 (SituationPuzzles); AR-Bench",
    module="rl_agents.envs.situation_puzzles",
    gym_id="rl_agents/SituationPuzzles-v0",
    options={
        "puzzles": "cases",
        "data": "",
        "bad_data": "error",
        "prompt": "paper",
        "malformed": "retry",
        "progress": "informative",
        "f1": "word",
        "success_threshold": 0.5,
        "judge": "rule",
        "match": 0.5,
        "judge_url": "",
        "judge_model": "",
        "judge_key_env": "",
        "judge_timeout_s": 30.0,
        "judge_retries": 2,
        "max_turns": 15,
    },
    max_turns=15,
    progress_window=5,
)
