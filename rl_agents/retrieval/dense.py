"""Dense retrieval: a sentence-transformers model from a folder, and exact inner-product search with FAISS.

Needs the extra ``dense``. Vectors have length 1, so the inner product is the cosine.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rl_agents.data.building import only_one, paced, printed
from rl_agents.durable import read_json
from rl_agents.errors import InputError
from rl_agents.installation import pip_install
from rl_agents.retrieval.passages import CACHED_QUERIES, Hit, PassageStore

_PASSAGES_AT_ONCE = 512
#: Prefixes of queries and passages in the training of E5 models (Wang et al. 2022, section 4).
E5_PREFIXES = ("query: ", "passage: ")


class DenseRetriever:
    """Finds passages whose vectors are nearest to the query's.

    An E5 model gets its prefixes, ``query: `` and ``passage: ``, and a line on stderr reports it.

    Args:
        store: the passages. Vectors of a store in a file are kept next to it.
        folder: the model's.
        key: the key that names the folder, for messages.

    Raises:
        InputError: the model cannot be loaded, or a package is missing.
    """

    def __init__(self, store: PassageStore, folder: str, key: str = "model") -> None:
        try:
            import faiss
        except ImportError as error:
            raise InputError(f"{key}={folder} needs FAISS: pip install {pip_install('dense')}") from error
        self._faiss = faiss
        self._model = load_sentence_model(folder, key, "dense")
        self._query_prefix, self._passage_prefix = E5_PREFIXES if is_e5(folder) else ("", "")
        if self._query_prefix:
            printed("[retrieval]")(f"{folder} is an E5 model: 'query: ' and 'passage: ' go before the texts", None)
        self._store, self._names = store, [passage.id for passage in store]
        self._index = self._stored_index(Path(folder))
        self._search = lru_cache(maxsize=CACHED_QUERIES)(self._nearest)

    def search(self, query: str, count: int) -> list[Hit]:
        """Return the ``count`` nearest passages with their cosines, best first, equal ones in the store's order."""
        return list(self._search(query, count))

    def _nearest(self, query: str, count: int) -> tuple[Hit, ...]:
        vectors = self._vectors(self._model.encode_query, [self._query_prefix + query])
        scores, numbers = self._index.search(vectors, count)
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
        index, passages = None, iter(self._store)
        while batch := list(itertools.islice(passages, _PASSAGES_AT_ONCE)):
            texts = [f"{passage.title}\n{passage.text}" if passage.title else passage.text for passage in batch]
            vectors = self._vectors(self._model.encode_document, [self._passage_prefix + text for text in texts])
            index = index if index is not None else self._faiss.IndexFlatIP(vectors.shape[1])
            index.add(vectors)
            report(f"{index.ntotal:,} of {len(self._store):,} passages", None)
        if index is None:
            raise InputError("dense retrieval needs at least one passage")
        return index

    @staticmethod
    def _vectors(encode: Any, texts: list[str]) -> npt.NDArray[np.float32]:
        return np.ascontiguousarray(encode(texts, normalize_embeddings=True, show_progress_bar=False), dtype=np.float32)


@lru_cache(maxsize=2)  # every store of a process asks
def load_sentence_model(folder: str, key: str, extra: str) -> Any:
    """Load a sentence-transformers model. Nothing is downloaded.

    Args:
        key: the key that names the folder, for messages.
        extra: the extra that installs the package.

    Raises:
        InputError: no such folder, no sentence-transformers, or the folder cannot be loaded.
    """
    if not Path(folder).is_dir():
        raise InputError(f"{key}={folder}: no such model folder")
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise InputError(f"{key}={folder} needs sentence-transformers: pip install {pip_install(extra)}") from error
    try:
        return SentenceTransformer(folder, local_files_only=True)
    except Exception as error:  # the loaders raise many types
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{key}={folder}: cannot be loaded: {reason}") from error


def is_e5(folder: str) -> bool:
    """Return whether a folder has an E5 model without prompts of its own.

    Its own name, or the name in its ``config.json``, decides. Instruct models are excluded, because their queries begin
    with a task.
    """
    names = [Path(folder).resolve().name, Path(str(_json(folder, "config.json").get("_name_or_path", ""))).name]
    e5 = any(re.search(r"(^|[-_])e5([-_]|$)", name.lower()) and "instruct" not in name.lower() for name in names)
    prompts = _json(folder, "config_sentence_transformers.json").get("prompts") or {}
    return e5 and not any(prompts.values())


def _json(folder: str, name: str) -> dict[str, Any]:
    """Return a JSON object of a model folder; empty if it cannot be read."""
    try:
        return read_json(Path(folder, name), dict)
    except (OSError, InputError):
        return {}
