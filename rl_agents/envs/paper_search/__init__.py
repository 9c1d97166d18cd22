"""What the registry knows about paper_search, and its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key
from rl_agents.envs.options import PromptKey, RetrieverKeys
from rl_agents.envs.spec import EnvSpec


@dataclass(frozen=True)
class PaperSearchOptions(PromptKey, RetrieverKeys):
    """Keys of paper_search; see docs/environments/question_answering.md."""

    papers: str = key("generated", "generated, generated:N, small, or a folder with papers and queries")
    bad_data: Literal["error", "skip"] = key(
        "error", "stop at an unusable record of a folder's files, or skip it", needs="papers!=generated|small"
    )
    results: int = key(10, "papers of a search", ge=1, le=100)
    max_calls: int = key(5, "calls of one turn that are run", ge=1, le=32)
    listed: int = key(40, "papers that one list shows", ge=1, le=200)
    search_cost: float = key(0.0, "subtracted from what a search earns", ge=0, le=1000)
    expand_cost: float = key(0.0, "subtracted from what an expansion earns", ge=0, le=1000)
    threshold: float = key(0.5, "papers of at least this score count at the end", ge=0, le=1)
    success_f1: float = key(0.8, "F1 from which an episode is a success; the papers know no such thing", ge=0, le=1)
    selector: Literal["rule", "openai"] = key("rule", "who scores papers: facets or annotation, or a model on a server")
    selector_url: str = key("", "of the server, up to and including /v1", needs="selector=openai")
    selector_model: str = key("", "its name on the server", needs="selector=openai")
    selector_key_env: str = key("", "environment variable with the server's key", needs="selector=openai")
    selector_threads: int = key(16, "requests at the same time", ge=1, le=256, needs="selector=openai")


SPEC = EnvSpec(
    name="paper_search",
    summary="collect the papers that meet a request, by searching and by following citations",
    reference="StepPO, appendix B (academic paper search)",
    options=PaperSearchOptions,
    max_turns=5,
    blocking="inline",
)
