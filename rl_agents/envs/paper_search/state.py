"""The state of a search, and one turn: calls that add papers to the pool and earn a reward.

Let s_1 >= s_2 >= ... be the relevance scores of the papers that a call discovers (new ones, with a score of at least
0.01):

    r(call) = s_1 + s_2 + s_3 - cost          a search with a new query, or the first expansion of a paper
    r(call) = -0.5                            a repeated query, or a repeated or impossible expansion
    r(step) = sum of r(call) over its calls   at most five

At the end, the papers of the pool with a score of at least the threshold are compared with the annotated papers:

    precision = hits / kept    recall = hits / annotated    F1 = 2 hits / (kept + annotated)

Source: StepPO (arXiv 2604.18401), appendix B.1. Its scripts take the top three per call, not per step, and costs of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_agents.envs.paper_search import PaperSearchOptions
from rl_agents.envs.paper_search.library import Library, Task
from rl_agents.envs.stateful import EpisodeState
from rl_agents.tools.toolbox import ToolError

TOP, PENALTY = 3, 0.5
#: Papers with a lower score are dropped. Those with at least `THRESHOLD` count at the end.
MIN_SCORE, THRESHOLD = 0.01, 0.5
#: F1 from which an episode is a success, a criterion of this project.
SUCCESS_F1 = 0.8
#: Most papers of an expansion: that cite the paper, and that it cites.
CITING, CITED = 30, 99


@dataclass(frozen=True, slots=True)
class Measures:
    """Agreement of the kept papers with the annotated ones."""

    precision: float
    recall: float
    f1: float


def discovery_reward(scores: Iterable[float], cost: float = 0.0) -> float:
    """Return the reward of one call for newly discovered papers: the three highest scores minus the cost.

    >>> discovery_reward([0.2, 1.0, 0.5, 0.9], cost=0.1)
    2.3
    """
    return sum(sorted(scores, reverse=True)[:TOP]) - cost


def measures(kept: Collection[str], annotated: Collection[str]) -> Measures:
    """Compare papers without duplicates; all 0 if no paper is in both.

    >>> measures({"a", "b", "x"}, {"a", "b", "c", "d"})
    Measures(precision=0.6666666666666666, recall=0.5, f1=0.5714285714285714)
    """
    hits = len(set(kept) & set(annotated))
    if not hits:
        return Measures(0.0, 0.0, 0.0)
    return Measures(hits / len(kept), hits / len(annotated), 2 * hits / (len(kept) + len(annotated)))


def query_key(query: str) -> str:
    """Return the words of a query without case and white space. Repeated queries have the same key.

    >>> query_key("  Moss\\nKITE ")
    'moss kite'
    """
    return " ".join(query.casefold().split())


SEARCH, EXPAND = "search", "expand"
MAX_QUERY = 1000

#: Reasons to reject a call that parses, with the penalty.
EMPTY_QUERY, REPEATED_QUERY = "empty-query", "repeated-query"
UNKNOWN_PAPER, REPEATED_EXPANSION = "unknown-paper", "repeated-expansion"


@dataclass(frozen=True, slots=True)
class Found:
    """A paper of the pool, and its relevance, which the agent does not see."""

    paper_id: str
    title: str
    score: float


@dataclass(frozen=True, slots=True)
class Action:
    """An executed call: ``search`` or ``expand``, its argument, and the number of papers it added."""

    kind: str
    argument: str
    added: int


@dataclass(frozen=True, slots=True)
class SearchState(EpisodeState):
    """The state of an episode.

    Attributes:
        pool: papers in the order of discovery.
        dropped: discovered papers with a score near zero. They are neither shown nor scored again.
        actions: executed calls.
        refused: number of calls that earned the penalty.
        malformed: number of unreadable turns, and of calls that did not fit their tool.
    """

    task: Task
    pool: tuple[Found, ...] = ()
    dropped: frozenset[str] = frozenset()
    actions: tuple[Action, ...] = ()
    refused: int = 0
    malformed: int = 0

    @property
    def pool_ids(self) -> frozenset[str]:
        return frozenset(found.paper_id for found in self.pool)

    @property
    def queries(self) -> frozenset[str]:
        return frozenset(query_key(action.argument) for action in self.actions if action.kind == SEARCH)

    @property
    def expanded(self) -> frozenset[str]:
        return frozenset(action.argument for action in self.actions if action.kind == EXPAND)

    @property
    def kept(self) -> frozenset[str]:
        """Ids of the papers that count at the end."""
        return frozenset(found.paper_id for found in self.pool if found.score >= THRESHOLD)


class Refused(ToolError):
    """A call that parses but gets the penalty; ``reason`` is one of the words above."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


#: Exponent of `relevance`.
SHARPNESS = 3


def relevance(task: Task, library: Library, paper_id: str) -> float:
    """Return (a generated paper's share of the wanted facets)^3; of other papers the annotation, 1 or 0."""
    if not task.wanted:
        return float(paper_id in task.relevant)
    return float((len(set(task.wanted) & set(library.facets[paper_id])) / len(task.wanted)) ** SHARPNESS)


class CallRunner:
    """The calls of one turn, one after the other: the state, the reward and the number of calls so far."""

    def __init__(
        self, state: SearchState, library: Library, options: PaperSearchOptions,
        score: Callable[[Task, Library, str], float] = relevance,
    ) -> None:  # fmt: skip
        self.state, self.reward, self.ran = state, 0.0, 0
        self._library, self._options, self._score = library, options, score

    def search(self, arguments: Mapping[str, Any]) -> tuple[Found, ...]:
        """Search for ``arguments["query"]`` and return the papers that are new in the pool.

        Raises:
            Refused: an empty or repeated query.
        """
        query = " ".join(str(arguments["query"]).split())[:MAX_QUERY]
        if not query:
            raise self._refuse(EMPTY_QUERY, "the query is empty")
        if query_key(query) in self.state.queries:
            raise self._refuse(REPEATED_QUERY, "this query has been searched for before; use other words")
        ids = self._library.search(query, self._options.results)
        return self._discover(Action(SEARCH, query, 0), ids, self._options.search_cost)

    def expand(self, arguments: Mapping[str, Any]) -> tuple[Found, ...]:
        """Add the papers that cite ``arguments["paper_id"]`` or are cited; raises `Refused`."""
        paper_id = str(arguments["paper_id"]).strip()
        if paper_id not in self.state.pool_ids:
            raise self._refuse(UNKNOWN_PAPER, "no paper of this id is in the paper list")
        if paper_id in self.state.expanded:
            raise self._refuse(REPEATED_EXPANSION, "this paper has been expanded before")
        ids = self._library.neighbors(paper_id, CITING, CITED)
        return self._discover(Action(EXPAND, paper_id, 0), ids, self._options.expand_cost)

    def _discover(self, action: Action, ids: Sequence[str], cost: float) -> tuple[Found, ...]:
        state = self.state
        known = state.pool_ids | state.dropped
        scores = {name: self._score(state.task, self._library, name) for name in ids if name not in known}
        kept = {paper_id: score for paper_id, score in scores.items() if score >= MIN_SCORE}
        papers = [self._library.store.get(paper_id) for paper_id in kept]
        found = tuple(Found(p.id, p.title, kept[p.id]) for p in papers)
        self.state = replace(
            state,
            pool=(*state.pool, *found),
            dropped=state.dropped | (scores.keys() - kept.keys()),
            actions=(*state.actions, replace(action, added=len(found))),
        )
        self.reward += discovery_reward(kept.values(), cost)
        self.ran += 1
        return found

    def _refuse(self, reason: str, message: str) -> Refused:
        self.state = replace(self.state, refused=self.state.refused + 1)
        self.reward -= PENALTY
        self.ran += 1
        return Refused(reason, message)
