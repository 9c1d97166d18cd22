"""The ranking over posting lists against BM25 by the book."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.retrieval.bm25 import Postings, Ranker


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


WORDS = st.sampled_from(["red", "blue", "lamp", "mug", "chair", "soft", "wool", "oak"])


@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=12), min_size=1, max_size=30),
    st.lists(WORDS, min_size=1, max_size=6),
    st.integers(1, 8),
)
@settings(deadline=None)
def test_ranking_equals_bm25_by_the_book(documents: list[list[str]], query: list[str], count: int) -> None:
    holding = {word: [n for n, words in enumerate(documents, 1) for w in words if w == word] for word in query}
    postings = {word: Postings.from_occurrences(numbers) for word, numbers in holding.items() if numbers}
    ranker = Ranker(np.array([0, *map(len, documents)], dtype=np.uint32), postings.get)
    expected = reference_bm25(documents, sorted(query))
    for _ in range(2):  # nothing of a query may stay for the next
        got = ranker.top(sorted(query), count)
        assert len(got) == min(count, len(expected))
        assert [score for _, score in got] == pytest.approx([score for _, score in expected[:count]])
        assert dict(got).items() <= {n: pytest.approx(s) for n, s in expected}.items()


def test_long_lists_are_skipped_without_changing_the_result() -> None:
    rng = np.random.default_rng(0)
    share = {"rare": 0.02, "some": 0.1, "common": 0.45, "most": 0.9}
    documents = [
        [w for w, p in share.items() for _ in range(rng.integers(1, 4)) if rng.random() < p] + ["x"]
        for _ in range(2000)
    ]
    lists = {
        w: Postings.from_occurrences(n for n, words in enumerate(documents, 1) for v in words if v == w) for w in share
    }
    ranker = Ranker(np.array([0, *map(len, documents)], dtype=np.uint32), lists.get)
    seen: list[int] = []
    add = ranker._add
    ranker._add = lambda postings, weight: (seen.append(len(postings.documents)), add(postings, weight))[1]  # type: ignore[method-assign]
    got = ranker.top(sorted(share), 20)
    expected = reference_bm25(documents, sorted(share))[:20]
    assert [n for n, _ in got] == [n for n, _ in expected]
    assert [s for _, s in got] == pytest.approx([s for _, s in expected])
    assert len(seen) == 4 and seen[-1] < 200 < len(lists["most"].documents)


def test_equal_scores_are_ordered_by_number() -> None:
    postings = {"x": Postings.from_occurrences(range(1, 100))}
    ranker = Ranker(np.full(200, 5, dtype=np.uint32), postings.get)
    assert [number for number, _ in ranker.top(["x"], 10)] == list(range(1, 11))
