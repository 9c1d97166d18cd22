"""How passages are found: by words, by vectors, or by both."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rl_agents.errors import InputError, unknown
from rl_agents.retrieval.dense import DenseRetriever
from rl_agents.retrieval.passages import Hit, PassageStore

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


KINDS = ("bm25", "dense", "hybrid")
#: Places of each ranking that a hybrid search fuses, at least.
FUSED_PLACES = 100


class Retriever(Protocol):
    """Text -> passages. A `PassageStore` is one."""

    def search(self, query: str, count: int) -> list[Hit]:
        """Return the best ``count`` passages, best first."""
        ...


@dataclass(frozen=True)
class FusedRetriever:
    """Several retrievers of one store; their rankings are fused by reciprocal ranks."""

    store: PassageStore
    retrievers: tuple[Retriever, ...]
    k: float = 60.0

    def search(self, query: str, count: int) -> list[Hit]:
        """Return the best ``count`` passages with their fused scores; see `reciprocal_rank_fusion`."""
        places = max(count, FUSED_PLACES)
        rankings = [[hit.passage.id for hit in one.search(query, places)] for one in self.retrievers]
        fused = reciprocal_rank_fusion(rankings, self.k)
        return [Hit(self.store.get(name), score) for name, score in fused[:count]]


def make_retriever(
    store: PassageStore,
    kind: str = "bm25",
    *,
    model: str = "",
    query_prefix: str = "",
    passage_prefix: str = "",
    key: str = "model",
) -> Retriever:
    """Return the retriever of a kind over ``store``.

    Args:
        kind: ``bm25``, ``dense`` or ``hybrid`` (both, fused).
        model: folder of a sentence-transformers model, for ``dense`` and ``hybrid``.
        query_prefix: what that model wants before a query.
        passage_prefix: what that model wants before a passage.
        key: the key that names ``model``, for messages.

    Raises:
        InputError: another kind, or a model that is missing or cannot be loaded.
    """
    if kind not in KINDS:
        raise unknown("retriever", kind, KINDS)
    if kind == "bm25":
        return store
    if not model:
        raise InputError(f"the {kind} retriever needs {key}=DIR, the folder of a sentence-transformers model")
    dense = DenseRetriever(store, model, query_prefix=query_prefix, passage_prefix=passage_prefix, key=key)
    return dense if kind == "dense" else FusedRetriever(store, (store, dense))
