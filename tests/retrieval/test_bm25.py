"""The ranking over posting lists against BM25 by the book."""

from __future__ import annotations

import math
import sqlite3
import threading
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.retrieval.bm25 import TextIndex, TextIndexWriter


def reference_bm25(documents: Sequence[Sequence[str]], query: Sequence[str]) -> list[tuple[int, float]]:
    """BM25 by the book: (document from 1, score), best first, zero scores left out."""
    average = sum(map(len, documents)) / len(documents)
    counts = [Counter(words) for words in documents]
    holders = {term: sum(term in words for words in counts) for term in query}
    asked = Counter(query)
    scores = []
    for number, words in enumerate(counts, start=1):
        score = 0.0
        for term, holding in holders.items():
            if words[term]:
                weight = max(math.log((len(documents) - holding + 0.5) / (holding + 0.5)), 1e-6)
                length = 1 - 0.75 + 0.75 * len(documents[number - 1]) / average
                score += asked[term] * weight * words[term] * 2.2 / (words[term] + 1.2 * length)
        if score > 0:
            scores.append((number, score))
    return sorted(scores, key=lambda pair: (-pair[1], pair[0]))


def index_of(documents: Sequence[Sequence[str]]) -> TextIndex:
    db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    writer = TextIndexWriter(db)
    for number, words in enumerate(documents, start=1):
        writer.add(number, " ".join(words))
    writer.finish(len(documents), lambda text, share: None)
    return TextIndex(db, threading.RLock())


WORDS = st.sampled_from(["red", "blu", "lamp", "mug", "wool", "oak"])  # which stemming leaves as they are


@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=12), min_size=1, max_size=30),
    st.lists(WORDS, min_size=1, max_size=6),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_ranking_equals_bm25_by_the_book(documents: list[list[str]], query: list[str], count: int) -> None:
    index, expected = index_of(documents), reference_bm25(documents, sorted(query))
    for _ in range(2):  # nothing of a query may stay for the next
        got = index.search(" ".join(query), count)
        assert len(got) == min(count, len(expected))
        assert [score for _, score in got] == pytest.approx([score for _, score in expected[:count]])
        assert dict(got).items() <= {n: pytest.approx(s) for n, s in expected}.items()


def test_equal_scores_are_ordered_by_number() -> None:
    index = index_of([["lamp"]] * 99 + [["mug"]] * 100)
    assert [number for number, _ in index.search("lamp", 10)] == list(range(1, 11))
