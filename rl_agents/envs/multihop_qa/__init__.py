"""The registry entry and the keys of multihop_qa."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key, off
from rl_agents.envs.options import PromptKey, QuestionFileKeys, ThoughtsKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class MultihopQAOptions(PromptKey, ThoughtsKey, QuestionFileKeys):
    """Keys of multihop_qa; see docs/environments/question_answering.md."""

    questions: str = key("generated", "generated, small, or a table of questions: a file, a folder or hub:NAME")
    test_questions: str = key(
        "", "table of test questions; empty for a tenth of the questions", needs=off(questions=("generated", "small"))
    )
    passages: str = key(
        "", "table of passages; empty for the passages of the questions", needs=off(questions=("generated", "small"))
    )
    hits: int = key(3, "passages that a search returns", ge=1, le=20)
    reward: Literal["em", "f1"] = key("em", "reward: normalized exact match, 0 or 1, or F1 over words")


SPEC = EnvSpec(
    name="multihop_qa",
    summary="answer questions whose facts are in several passages, with a search tool",
    reference="StepPO, appendix B (multi-hop QA: HotpotQA, 2Wiki, MuSiQue); PRS and VSPO, experiments (short-form QA)",
    gym_id="rl_agents/MultihopQA-v0",
    options=MultihopQAOptions,
    max_turns=5,
    progress_window=2,
    blocking="inline",
)
