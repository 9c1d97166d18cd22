"""GuessNumbers: find a secret code from feedback on guesses (T3, appendix C.1)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.guess_numbers.env import GuessNumbersEnv, make
from rl_agents.envs.guess_numbers.tasks import task_ids

__all__ = ["STARTER", "GuessNumbersEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing the game needs neither.
    if name == "STARTER":
        from rl_agents.envs.guess_numbers.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
