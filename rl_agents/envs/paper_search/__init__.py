"""The registry's entry of paper_search, and its keys."""

from __future__ import annotations

from dataclasses import dataclass

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class PaperSearchOptions(PromptKey):
    """Keys of paper_search; see docs/environments/question_answering.md."""

    papers: str = key("generated", "papers: generated, small, or a folder with papers and queries")
    results: int = key(10, "papers that a search returns", ge=1, le=100)
    max_calls: int = key(5, "tool calls of one turn that are run", ge=1, le=32)
    search_cost: float = key(0.0, "cost of a search, subtracted from its reward", ge=0, le=1000)
    expand_cost: float = key(0.0, "cost of an expansion, subtracted from its reward", ge=0, le=1000)


SPEC = EnvSpec(
    name="paper_search",
    summary="collect the papers that meet a request, by searching and by following citations",
    reference="StepPO, appendix B (academic paper search)",
    options=PaperSearchOptions,
    max_turns=5,
    blocking="inline",
)
