"""How passages are found: by words, by vectors, or by both.

Dense retrieval needs the extra ``dense``: a sentence-transformers model from a folder, and exact inner-product search
with FAISS. Vectors have length 1, so that the inner product is the cosine.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from rl_agents.data.building import only_one, paced, printed
from rl_agents.errors import InputError, unknown
from rl_agents.installation import pip_install
from rl_agents.retrieval.passages import Hit, Passage, PassageStore
from rl_agents.retrieval.sentence_model import E5_PREFIXES, is_e5, load_sentence_model

_PASSAGES_AT_ONCE = 512
_CACHED_QUERIES = 8192

Vectors = npt.NDArray[np.float32]


class DenseRetriever:
    """Finds passages whose vectors are nearest to the query's.

    Args:
        store: what to search. The vectors of a store in a file are kept next to it, those of one in memory are not.
        folder: the model's.
        query_prefix, passage_prefix: what the model wants before the texts. Without either an E5 model gets its own,
            ``query: `` and ``passage: ``, and a line on stderr reports it.
        key: the key that names the folder, for messages.

    Raises:
        InputError: the model cannot be loaded, or the packages are missing.
    """

    def __init__(
        self, store: PassageStore, folder: str, *, query_prefix: str = "", passage_prefix: str = "", key: str = "model"
    ) -> None:
        self._faiss = _import_faiss(key, folder)
        self._model = load_sentence_model(folder, key, "dense")
        if not query_prefix and not passage_prefix and is_e5(folder):
            query_prefix, passage_prefix = E5_PREFIXES
            printed("[retrieval]")(f"{folder} is an E5 model: 'query: ' and 'passage: ' go before the texts", None)
        self._store, self._query_prefix, self._passage_prefix = store, query_prefix, passage_prefix
        self._names = [passage.id for passage in store]
        self._index = self._stored_index(Path(folder))
        self._search = lru_cache(maxsize=_CACHED_QUERIES)(self._nearest)

    def search(self, query: str, count: int) -> list[Hit]:
        """Return the ``count`` nearest passages with their cosines, best first, equal ones in the store's order."""
        return list(self._search(query, count))

    def _nearest(self, query: str, count: int) -> tuple[Hit, ...]:
        scores, numbers = self._index.search(self._vectors([query], self._query_prefix, query=True), count)
        found = sorted((-float(score), int(number)) for score, number in zip(scores[0], numbers[0], strict=True))
        return tuple(Hit(self._store.get(self._names[number]), -score) for score, number in found if number >= 0)

    def _stored_index(self, folder: Path) -> Any:
        if self._store.path is None:
            return self._build_index()
        weights = sorted((str(path.name), path.stat().st_size, path.stat().st_mtime_ns) for path in folder.glob("*"))
        version = repr((str(folder.resolve()), weights, self._passage_prefix))
        path = self._store.path.with_suffix(f".{hashlib.sha256(version.encode()).hexdigest()[:12]}.faiss")
        with only_one(path):
            if not path.is_file():
                unfinished = path.with_suffix(f".{os.getpid()}")
                self._faiss.write_index(self._build_index(), str(unfinished))
                os.replace(unfinished, path)
        return self._faiss.read_index(str(path))

    def _build_index(self) -> Any:
        report = paced(printed("[retrieval] computing vectors"))
        index, done = None, 0
        for passages in _batches(self._store):
            texts = [f"{passage.title}\n{passage.text}" if passage.title else passage.text for passage in passages]
            vectors = self._vectors(texts, self._passage_prefix, query=False)
            index = index if index is not None else self._faiss.IndexFlatIP(vectors.shape[1])
            index.add(vectors)
            done += len(passages)
            report(f"{done:,} of {len(self._store):,} passages", None)
        if index is None:
            raise InputError("dense retrieval needs at least one passage")
        return index

    def _vectors(self, texts: list[str], prefix: str, *, query: bool) -> Vectors:
        encode = self._model.encode_query if query else self._model.encode_document
        vectors = encode([prefix + text for text in texts], normalize_embeddings=True, show_progress_bar=False)
        return np.ascontiguousarray(vectors, dtype=np.float32)


def _batches(passages: Iterable[Passage]) -> Iterator[list[Passage]]:
    rest = iter(passages)
    while batch := list(itertools.islice(rest, _PASSAGES_AT_ONCE)):
        yield batch


def _import_faiss(key: str, folder: str) -> Any:
    try:
        import faiss
    except ImportError as error:
        raise InputError(f"{key}={folder} needs FAISS: pip install {pip_install('dense')}") from error
    return faiss


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
    key: str = "model",
) -> Retriever:
    """Return the retriever of a kind over ``store``.

    Args:
        kind: ``bm25``, ``dense`` or ``hybrid`` (both, fused).
        model: folder of a sentence-transformers model, for ``dense`` and ``hybrid``.
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
    dense = DenseRetriever(store, model, key=key)
    return dense if kind == "dense" else FusedRetriever(store, (store, dense))
