"""One ranking from several."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TypeVar

Item = TypeVar("Item", bound=Hashable)


def reciprocal_rank_fusion(rankings: Sequence[Sequence[Item]], k: float = 60.0) -> list[tuple[Item, float]]:
    """Fuse rankings by the places of their items alone.

        score(d) = sum over rankings r that hold d of:  1 / (k + rank_r(d)),   rank from 1

    Args:
        rankings: best item first, each item once.
        k: how little the first places stand out; 60 is the paper's.

    Returns:
        Every item with its score, best first; equal ones in the order in which the rankings, one after the other,
        name them first.

    Source: Cormack, Clarke and Buettcher (2009), "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods", section 2.
    """
    scores: dict[Item, float] = {}
    for ranking in rankings:
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda pair: -pair[1])
