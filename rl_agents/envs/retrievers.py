"""Retrievers of the environments that search passages; those that load a model are kept."""

from __future__ import annotations

from functools import lru_cache

from rl_agents.envs.options import RetrieverKeys
from rl_agents.retrieval.passages import PassageStore
from rl_agents.retrieval.retriever import Retriever, make_retriever


def retriever_over(store: PassageStore, keys: RetrieverKeys) -> Retriever:
    """Return the retriever that the keys describe; ``keys`` is a `RetrieverKeys` and no more (`part_of`).

    Raises:
        InputError: no usable model for a dense one.
    """
    return store if keys.retriever == "bm25" else _loaded(store, keys)


@lru_cache(maxsize=64)
def _loaded(store: PassageStore, keys: RetrieverKeys) -> Retriever:
    return make_retriever(
        store,
        keys.retriever,
        model=keys.retriever_model,
        query_prefix=keys.query_prefix,
        passage_prefix=keys.passage_prefix,
        key="env.retriever_model",
    )
