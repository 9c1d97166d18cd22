"""The registry entry and the keys of situation_puzzles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import JudgeKeys, PromptKey
from rl_agents.envs.spec import EnvSpec
from rl_agents.rewards.judges import check_judge


@dataclass(frozen=True)
class SituationPuzzlesOptions(JudgeKeys, PromptKey):
    """Keys of situation_puzzles; see docs/environments/active_reasoning.md."""

    judge: Literal["rule", "openai"] = key("rule", "judge: rule compares words, openai asks a model on a server")
    puzzles: Literal["cases", "small"] = key("cases", "puzzle set: 500 generated stories, or 500 short ones")
    data: str = key("", "folder with train.json and test.json in AR-Bench's format, instead of the built-in puzzles")
    f1: Literal["word", "char"] = key("word", "unit of the reward's F1")
    success_threshold: float = key(0.5, "F1 from which an answer is a success; does not change the reward", gt=0, le=1)

    def __post_init__(self) -> None:
        check_judge(self, "env.")


SPEC = EnvSpec(
    name="situation_puzzles",
    summary="find the story behind a strange scene with yes-or-no questions",
    reference="T3, appendix C.1 (SituationPuzzles); AR-Bench",
    options=SituationPuzzlesOptions,
    max_turns=15,
    progress_window=5,
    blocking="inline",
)
