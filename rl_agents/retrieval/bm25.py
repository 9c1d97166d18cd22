"""BM25 over posting lists: SQLite FTS5's formula and text analysis, at a fraction of its ``bm25()``'s time.

    score(D, Q) = sum over terms t of Q:  idf(t) * f * (k1 + 1) / (f + k1 * (1 - b + b * |D| / avgdl))
    idf(t) = max(log((N - n + 0.5) / (n + 0.5)), 1e-6)

f counts t in D, |D| is D's number of tokens, N the number of documents, n those with t; k1 = 1.2, b = 0.75. A word that
the query says twice counts twice, as in Lucene and FTS5.

FTS5's own ``bm25()`` visits every row of every term through callbacks, twice per query. With the posting lists as
arrays the same numbers take one vectorized pass. FTS5 still reads the texts: it tokenizes, folds case and accents and
stems (``porter unicode61``), for documents and queries alike. Query text is data to it, never its query language.

Source: SQLite, "FTS5", section 5.1.1; Robertson and Zaragoza (2009), section 3.4.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

K1, B = 1.2, 0.75
MIN_IDF = 1e-6
TOKENIZER = "porter unicode61"
#: What a query may be long; more is cut off.
MAX_QUERY_CHARACTERS = 1000
MAX_QUERY_TERMS = 64

Ids = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Postings:
    """The documents that hold a term, ascending, and how often each does (counts above 65535 are cut)."""

    documents: Ids
    counts: npt.NDArray[np.uint16]

    @classmethod
    def from_occurrences(cls, documents: Iterable[int]) -> Postings:
        """Count a term's occurrences, one document id each."""
        ids, counts = np.unique(np.fromiter(documents, dtype=np.uint32), return_counts=True)
        return cls(ids, np.minimum(counts, 0xFFFF).astype(np.uint16))

    def restricted_to(self, documents: npt.NDArray[np.intp]) -> Postings:
        """Return the part about ``documents``, which ascend."""
        places = np.searchsorted(self.documents, documents.astype(self.documents.dtype))
        places = places[places < len(self.documents)]
        there = self.documents[places] == documents[: len(places)]
        return Postings(self.documents[places[there]], self.counts[places[there]])

    @classmethod
    def from_bytes(cls, documents: bytes, counts: bytes) -> Postings:
        """Read what `to_bytes` wrote."""
        return cls(np.frombuffer(documents, dtype="<u4"), np.frombuffer(counts, dtype="<u2"))

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return both arrays, little-endian."""
        return self.documents.astype("<u4").tobytes(), self.counts.astype("<u2").tobytes()


class Analyzer:
    """Splits text into FTS5's terms with an index of its own in memory."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, content='', tokenize='{TOKENIZER}')")
        self._db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'row')")

    def terms(self, text: str) -> list[str]:
        """Return the terms of a query, sorted, each as often as it occurs; at most `MAX_QUERY_TERMS` different ones."""
        self._db.execute("INSERT INTO t(rowid, x) VALUES (1, ?)", (clean_text(text[:MAX_QUERY_CHARACTERS]),))
        found = self._db.execute("SELECT term, cnt FROM v LIMIT ?", (MAX_QUERY_TERMS,))
        terms = [term for term, count in found for _ in range(count)]
        self._db.execute("INSERT INTO t(t) VALUES ('delete-all')")
        return terms


class Ranker:
    """Ranks documents 1 to N for queries.

    Args:
        lengths: tokens of each document; element 0 is not a document.
        postings: looks a term up; None when no document has it.
    """

    def __init__(self, lengths: npt.NDArray[np.uint32], postings: Callable[[str], Postings | None]) -> None:
        self._documents = len(lengths) - 1
        average = max(float(lengths[1:].mean()), 1e-9) if self._documents else 1.0
        self._norms = K1 * (1 - B + B * lengths.astype(np.float64) / average)
        self._postings = postings
        self._scores = np.zeros(len(lengths))

    def top(self, terms: Sequence[str], count: int) -> list[tuple[int, float]]:
        """Return the best ``count`` documents with a positive score, best first, equal ones by id.

        Rare words come first. Once the words that are left cannot lift any further document into the best ``count``,
        they are looked up for the documents in question alone (MaxScore, Turtle and Flood 1995): the result is the
        same, and the longest lists are hardly read.
        """
        counts = Counter(terms)
        found = [(postings, n) for term, n in counts.items() if (postings := self._postings(term)) is not None]
        found.sort(key=lambda pair: len(pair[0].documents))
        weights = [n * idf(self._documents, len(postings.documents)) for postings, n in found]
        scores, touched, read = self._scores, None, 0
        for place, ((postings, _), weight) in enumerate(zip(found, weights, strict=True)):
            # What a document can still gain; the margin covers rounding.
            open_gain = sum(weights[place:]) * (K1 + 1) * (1 + 1e-9)
            if touched is None and read and len(postings.documents) > 2 * read:
                touched = self._contenders(count, open_gain)
            if touched is None:
                self._add(postings, weight)
                read += len(postings.documents)
            else:
                self._add(postings.restricted_to(touched), weight)
        if touched is None:
            touched = np.flatnonzero(scores)
        values = scores[touched]
        scores[:] = 0.0
        if len(touched) > count:
            # Everything that ties with the last place stays, so that ids decide and not the partition's order.
            keep = values >= np.partition(values, len(values) - count)[len(values) - count]
            touched, values = touched[keep], values[keep]
        order = np.lexsort((touched, -values))[:count]
        return [(int(touched[i]), float(values[i])) for i in order]

    def _add(self, postings: Postings, weight: float) -> None:
        ids, counts = postings.documents, postings.counts.astype(np.float64)
        self._scores[ids] += weight * (counts * (K1 + 1) / (counts + self._norms[ids]))

    def _contenders(self, count: int, open_gain: float) -> npt.NDArray[np.intp] | None:
        """Return the documents that may still be among the best, or None when unseen ones may be."""
        touched = np.flatnonzero(self._scores)
        if len(touched) < count:
            return None
        values = self._scores[touched]
        last = np.partition(values, len(values) - count)[len(values) - count]
        return touched[values + open_gain >= last] if last > open_gain else None


def clean_text(text: str) -> str:
    """Return text that SQLite can take: a NUL would end it for some functions, a lone surrogate cannot be bound."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def idf(documents: int, with_term: int) -> float:
    """Return the weight of a term that ``with_term`` of ``documents`` documents have."""
    return max(math.log((documents - with_term + 0.5) / (with_term + 0.5)), MIN_IDF)
