"""Sentence vectors that tell whether an agent asks the same question again."""

from __future__ import annotations

import zlib
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rl_agents.errors import InputError
from rl_agents.retrieval.sentence_model import load_sentence_model

Vector = NDArray[np.float32]


class Embedder(Protocol):
    """Text -> vector of length 1, or of length 0 for a text without content."""

    def embed(self, text: str) -> Vector:
        """Return the vector of ``text``."""
        ...


class HashedNgrams:
    """Counts of a text's character n-grams, hashed into ``dimensions`` buckets and scaled to length 1.

    Needs no model and no download. It sees wording, not meaning: a paraphrase counts as a new question. Case and white
    space do not matter.
    """

    def __init__(self, sizes: tuple[int, ...] = (2, 3), dimensions: int = 4096) -> None:
        self.sizes, self.dimensions = sizes, dimensions

    def embed(self, text: str) -> Vector:
        vector = np.zeros(self.dimensions, dtype=np.float32)
        words = " ".join(text.casefold().split())
        padded = f" {words} " if words else ""
        for size in self.sizes:
            for start in range(len(padded) - size + 1):
                # crc32, because Python's own hash differs from process to process
                vector[zlib.crc32(padded[start : start + size].encode()) % self.dimensions] += 1.0
        return normalized(vector)


class SentenceTransformerEmbedder:
    """A local sentence-transformers model, such as a copy of E5-large-v2 (the paper's)."""

    def __init__(self, folder: str) -> None:
        """Load the model.

        Raises:
            InputError: no such folder, no sentence-transformers, or a folder that it cannot load.
        """
        if not Path(folder).is_dir():
            raise InputError(f"truncation_embedder={folder}: neither `ngrams` nor a model folder")
        self.model = load_sentence_model(folder, "truncation_embedder", "similarity")

    def embed(self, text: str) -> Vector:
        return normalized(np.asarray(self.model.encode(text, show_progress_bar=False), dtype=np.float32))


def normalized(vector: Vector) -> Vector:
    """Scale to length 1; a zero vector stays."""
    length = float(np.linalg.norm(vector))
    return vector / length if length else vector


@lru_cache(maxsize=2)  # every env runner of a process asks
def make_embedder(name: str) -> Embedder:
    """Return the embedder that the key ``truncation_embedder`` names.

    Raises:
        InputError: see `SentenceTransformerEmbedder`.
    """
    return HashedNgrams() if name == "ngrams" else SentenceTransformerEmbedder(name)
