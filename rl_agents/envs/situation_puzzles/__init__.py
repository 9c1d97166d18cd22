"""What the registry knows about situation_puzzles, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import JudgeKeys, PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class SituationPuzzlesOptions(JudgeKeys, PromptKey):
    """Keys of situation_puzzles; see docs/environments/active_reasoning.md."""

    judge: Literal["rule", "openai"] = key("rule", "words, which needs nothing, or a model behind a server")
    puzzles: Literal["cases", "small", "demo"] = key("cases", "500 generated stories, 500 short ones, 12 by hand")
    data: str = key("", "folder with train.json and test.json in AR-Bench's format; its puzzles replace ours")
    bad_data: Literal["error", "skip"] = key(
        "error", "stop at an unusable record of the folder, or skip it", needs="data"
    )
    progress: Literal["informative", "new"] = key(
        "informative", "info['progress']: the judge did not say Unknown (T3), or said yes or no to something new"
    )
    f1: Literal["word", "char"] = key("word", "unit of the reward")
    success_threshold: float = key(0.5, "an answer with at least this F1 is a success; changes no reward", gt=0, le=1)
    match: float = key(
        0.5, "how like a key question a question must be for the rule judge", gt=0, le=1,
        needs=("judge=rule", "data"),
    )  # fmt: skip


SPEC = EnvSpec(
    name="situation_puzzles",
    summary="find the story behind a strange scene with yes-or-no questions",
    reference="T3, appendix C.1 (SituationPuzzles); AR-Bench",
    options=SituationPuzzlesOptions,
    max_turns=15,
    progress_window=5,
    blocking="inline",
)
