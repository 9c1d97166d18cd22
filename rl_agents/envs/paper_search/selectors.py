"""Selectors score the relevance of a paper to a query: a rule, or a model behind an OpenAI-compatible server.

The server receives the prompt of pasa-7b-selector, StepPO's selector (StepPO, appendix C, word for word). The score is

    s = p(True) / (p(True) + p(False))    at the first token of the reply that is one of the two

from the log-probabilities of the reply's tokens; if the server returns none, 1 or 0 according to the text. Another
reply raises `JudgeError`, which becomes the cause of the episode's end.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, ClassVar

from rl_agents.background import SharedAnswers
from rl_agents.envs.paper_search import PaperSearchOptions
from rl_agents.envs.paper_search.library import Library, Task
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage
from rl_agents.rewards.judges import OpenAIJudge
from rl_agents.tools.thoughts import read_thoughts
from rl_agents.web.model_server import SHOWN, ModelServer

#: Scores kept for repeated queries: all members of a group ask about the same papers.
KEPT_SCORES = 500_000
REPLY_TOKENS, TOP_LOGPROBS = 8, 10
#: Of requests to the server: time limit, further attempts, and concurrency.
TIMEOUT_S, RETRIES, CONCURRENCY = 30.0, 2, 16

PROMPT = """\
You are an elite researcher in the field of AI, conducting research on {query}. Evaluate whether the following paper \
fully satisfies the detailed requirements of the user query and provide your reasoning. Ensure that your decision and \
reasoning are consistent.

Searched Paper:
Title: {title}
Abstract: {abstract}

User Query: {query}

Output format: Decision: True/False
Reason:...
Decision:"""

_DECISION = re.compile(r"\W*(?:decision\W*)?(true|false)\b", re.IGNORECASE)


#: Exponent of `facet_relevance`.
SHARPNESS = 3


def facet_relevance(wanted: Collection[str], facets: Collection[str]) -> float:
    """Return the relevance of a generated paper: (its share of the wanted facets)^3.

    >>> facet_relevance(("moss", "kite"), ("moss", "kite", "island")), facet_relevance(("moss", "kite"), ("moss",))
    (1.0, 0.125)
    """
    return float((len(set(wanted) & set(facets)) / len(wanted)) ** SHARPNESS)


class RuleSelector:
    """Scores generated papers by their facets (`facet_relevance`), and others by the annotation: 1 or 0."""

    remote: ClassVar[bool] = False

    async def scores(self, task: Task, library: Library, paper_ids: Sequence[str]) -> list[float]:
        if not task.wanted:
            return [float(paper_id in task.relevant) for paper_id in paper_ids]
        return [facet_relevance(task.wanted, library.facets[paper_id]) for paper_id in paper_ids]


@dataclass(frozen=True)
class ServerSelector(OpenAIJudge):
    """A model behind a server; limits, retries and errors are those of `OpenAIJudge`.

    Attributes:
        known: scores by query and paper, also of requests in progress.
    """

    known: SharedAnswers[float] = field(default_factory=lambda: SharedAnswers(KEPT_SCORES), compare=False, repr=False)

    async def scores(self, task: Task, library: Library, paper_ids: Sequence[str]) -> list[float]:
        """Return the relevance of each paper. A paper is requested once per query.

        Raises:
            JudgeError: the server gave no usable reply.
        """
        papers = [library.store.get(paper_id) for paper_id in paper_ids]
        asked = [self.known.get((task.query, p.id), partial(self.score, task.query, p)) for p in papers]
        return await asyncio.gather(*asked)

    async def score(self, query: str, paper: Passage) -> float:
        """Return the probability that ``paper`` satisfies ``query``; raises `JudgeError`."""
        text = PROMPT.format(query=query, title=paper.title, abstract=paper.text)
        about = f"{query} -> {paper.title}"
        asked = {"logprobs": True, "top_logprobs": TOP_LOGPROBS, "max_completion_tokens": REPLY_TOKENS}
        choice = await self._choice(text, about, **asked)
        reply = str(choice["message"]["content"] or "")
        decision = read_thoughts(reply).words
        found = _DECISION.match(decision)
        probability = _probability(choice, len(reply) - len(decision))
        if found is None and probability is None:
            raise self._error(f"replied {reply[:SHOWN]!r}, neither True nor False", about)
        return probability if probability is not None else float(found is not None and found[1].lower() == "true")


def _probability(choice: Mapping[str, Any], begin: int) -> float | None:
    """Return p(True) / (p(True) + p(False)) at the first such token after ``begin`` characters of thoughts, or None."""
    try:
        entries = choice["logprobs"]["content"]
        ends = accumulate(len(entry["token"]) for entry in entries)
        said = [entry for entry, end in zip(entries, ends, strict=True) if end > begin]
        tokens = [(_word(entry["token"]), entry["top_logprobs"]) for entry in said]
        alternatives: list[Any] = next((top for word, top in tokens if word in ("true", "false")), [])
        mass = {"true": 0.0, "false": 0.0}
        for other in alternatives:
            if _word(other["token"]) in mass:
                mass[_word(other["token"])] += math.exp(min(float(other["logprob"]), 0.0))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    total = sum(mass.values())
    return mass["true"] / total if total > 0 else None


def _word(token: str) -> str:
    return token.strip().lower()


Selector = RuleSelector | ServerSelector


def make_selector(options: PaperSearchOptions) -> Selector:
    """Build the selector of the environment's options. Environments with equal options share it."""
    if options.selector == "rule":
        return RuleSelector()
    for name in ("selector_url", "selector_model"):
        if not getattr(options, name):
            raise InputError(f"env.selector=openai needs env.{name}")
    return _server(options.selector_url, options.selector_model, options.selector_key_env)


@lru_cache(maxsize=8)
def _server(url: str, model: str, key_env: str) -> ServerSelector:
    server = ModelServer.connect(
        url, key_env=key_env, timeout_s=TIMEOUT_S, retries=RETRIES, concurrency=CONCURRENCY, option="selector"
    )
    return ServerSelector(model, server)
