"""The registry entry and the keys of long_form_qa."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import JudgeKeys, PromptKey, ThoughtsKey
from rl_agents.envs.spec import EnvSpec
from rl_agents.rewards.judges import check_judge


@dataclass(frozen=True)
class LongFormQAOptions(JudgeKeys, PromptKey, ThoughtsKey):
    """Keys of long_form_qa; see docs/environments/question_answering.md."""

    documents: str = key("", "table of passages; empty for the generated almanac")
    questions: str = key("", "table of questions about the documents", needs="documents")
    columns: dict[str, str] = key(
        {}, "field -> column of the questions, such as points:rubric.items", needs="questions"
    )
    results: int = key(3, "passages that a search returns", ge=1, le=10)
    reward: Literal["pass", "match", "points"] = key(
        "pass",
        "reward: 1 for a grounded and complete answer, 1 for a complete answer (PRS), or the product of the rule "
        "judge's shares of stated points and grounded sentences",
    )

    def __post_init__(self) -> None:
        check_judge(self, "env.")


SPEC = EnvSpec(
    name="long_form_qa",
    summary="answer questions over a document set in several sentences that the documents support",
    reference="PRS and VSPO (arXiv 2512.07478), long-form question answering",
    gym_id="rl_agents/LongFormQA-v0",
    options=LongFormQAOptions,
    max_turns=6,
    progress_window=2,
    blocking="inline",
)
