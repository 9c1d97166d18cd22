"""The rules of paper search, as pure functions: what a call earns, and how a pool of papers is measured.

For a call that discovers papers with relevance scores s_1 >= s_2 >= ... (new papers with a score of at least 0.01):

    r(call) = s_1 + s_2 + s_3 - cost          a search with a new query, an expansion of a paper for the first time
    r(call) = -0.5                            a repeated query, a repeated or an impossible expansion
    r(step) = sum of r(call) over its calls   at most five

At the end the papers of the pool with a score of at least the threshold are compared with the annotated ones:

    precision = hits / kept    recall = hits / annotated    F1 = 2 hits / (kept + annotated)

Source: StepPO (arXiv 2604.18401), appendix B.1; that the top three are taken per call, not per step, and that the costs
are 0, is what its scripts do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

TOP = 3
#: Power of the share of the wanted facets that a generated paper has.
SHARPNESS = 3


@dataclass(frozen=True, slots=True)
class Measures:
    """How well the kept papers agree with the annotated ones."""

    precision: float
    recall: float
    f1: float


def discovery_reward(scores: Iterable[float], cost: float = 0.0) -> float:
    """Return what the newly discovered papers of one call earn: the three highest scores, less the cost.

    >>> discovery_reward([0.2, 1.0, 0.5, 0.9], cost=0.1)
    2.3
    """
    return sum(sorted(scores, reverse=True)[:TOP]) - cost


def measures(kept: Collection[str], annotated: Collection[str]) -> Measures:
    """Compare papers without duplicates; all 0 where nothing agrees, or there is nothing to find.

    >>> measures({"a", "b", "x"}, {"a", "b", "c", "d"})
    Measures(precision=0.6666666666666666, recall=0.5, f1=0.5714285714285714)
    """
    hits = len(set(kept) & set(annotated))
    if not hits:
        return Measures(0.0, 0.0, 0.0)
    return Measures(hits / len(kept), hits / len(annotated), 2 * hits / (len(kept) + len(annotated)))


def facet_relevance(wanted: Collection[str], facets: Collection[str]) -> float:
    """Return the relevance of a generated paper: (share of the wanted facets that it has)^3.

    >>> facet_relevance(("moss", "kite"), ("moss", "kite", "island")), facet_relevance(("moss", "kite"), ("moss",))
    (1.0, 0.125)
    """
    return float((len(set(wanted) & set(facets)) / len(wanted)) ** SHARPNESS)


def query_key(query: str) -> str:
    """Return what two queries have in common when one repeats the other: the words without case and white space.

    >>> query_key("  Moss\\nKITE ")
    'moss kite'
    """
    return " ".join(query.casefold().split())
