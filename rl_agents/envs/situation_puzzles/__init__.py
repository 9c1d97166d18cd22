"""SituationPuzzles: find the story behind a strange scene with yes-or-no questions (T3, appendix C.1; AR-Bench)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.situation_puzzles.env import SituationPuzzlesEnv, make
from rl_agents.envs.situation_puzzles.tasks import task_ids

__all__ = ["STARTER", "SituationPuzzlesEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing the game needs neither.
    if name == "STARTER":
        from rl_agents.envs.situation_puzzles.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
