"""The registry entry and the keys of guess_numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class GuessNumbersOptions(PromptKey):
    """Keys of guess_numbers; see docs/environments/active_reasoning.md."""

    progress: Literal["consistent", "shrunk"] = key(
        "consistent", "progress rule: the guess is in the hypothesis set (T3), or the set became smaller"
    )


SPEC = EnvSpec(
    name="guess_numbers",
    summary="find a secret code from feedback on guesses",
    reference="T3, appendix C.1 (GuessNumbers)",
    options=GuessNumbersOptions,
    max_turns=10,
    progress_window=1,
    blocking="inline",
)
