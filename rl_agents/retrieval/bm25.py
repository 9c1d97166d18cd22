"""BM25 over posting lists in an SQLite database: SQLite FTS5's formula and text analysis, faster than its ``bm25()``.

    score(D, Q) = sum over terms t of Q:  idf(t) * f * (k1 + 1) / (f + k1 * (1 - b + b * |D| / avgdl))
    idf(t) = max(log((N - n + 0.5) / (n + 0.5)), 1e-6)

f is the count of t in D, |D| the number of tokens in D, N the number of documents, and n the number of those with t.
k1 = 1.2, b = 0.75. A word that occurs twice in the query counts twice, as in Lucene and FTS5.

FTS5's own ``bm25()`` visits every row of every term through callbacks, twice per query. With posting lists as arrays,
one vectorized pass computes the same numbers. FTS5 still analyzes documents and queries: it tokenizes, folds case and
accents, and stems (``porter unicode61``). Query text is data, never FTS5's query language. The package bm25s, which the
tests compare with, holds all tokens in memory while it builds an index.

The index consists of two tables, ``terms`` and ``text_index``, in a database with other tables. Documents are numbered
from 1.

Source: SQLite, "FTS5", section 5.1.1; Robertson and Zaragoza (2009), section 3.4.
"""

from __future__ import annotations

import itertools
import math
import sqlite3
import threading
from collections import Counter
from operator import itemgetter

import numpy as np

from rl_agents.data.building import Report

K1, B = 1.2, 0.75
MIN_IDF = 1e-6
TOKENIZER = "porter unicode61"
#: Longer queries are cut.
MAX_QUERY_CHARACTERS = 1000
MAX_QUERY_TERMS = 64
TABLES = """
CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT UNIQUE, documents BLOB, counts BLOB);
CREATE TABLE text_index (lengths BLOB);
"""


class TextIndexWriter:
    """Collects documents and writes their index. Memory is bounded if ``scratch`` is a file.

    Args:
        db: a connection outside a transaction.
        scratch: SQLite file for the words until they are written; by default they are in memory.
    """

    def __init__(self, db: sqlite3.Connection, scratch: str = ":memory:") -> None:
        self._db = db
        db.executescript(TABLES)
        db.execute("ATTACH DATABASE ? AS words", (scratch,))
        db.executescript(
            "PRAGMA words.journal_mode = OFF; PRAGMA words.synchronous = OFF;"
            f"CREATE VIRTUAL TABLE words.t USING fts5(x, content='', tokenize='{TOKENIZER}');"
            "CREATE VIRTUAL TABLE words.v USING fts5vocab(t, 'instance');"
        )

    def add(self, number: int, text: str) -> None:
        self._db.execute("INSERT INTO words.t(rowid, x) VALUES (?, ?)", (number, clean_text(text)))

    def finish(self, documents: int, report: Report) -> None:
        """Write the posting lists of documents 1 to ``documents``, term by term. Counts are at most 65535."""
        lengths = np.zeros(documents + 1, dtype="<u4")
        occurrences = self._db.execute("SELECT term, doc FROM words.v")  # in the order of terms, then documents
        for written, (term, group) in enumerate(itertools.groupby(occurrences, key=itemgetter(0)), start=1):
            holders, counts = np.unique(np.fromiter(map(itemgetter(1), group), "<u4"), return_counts=True)
            counts = np.minimum(counts, 0xFFFF).astype("<u2")
            lengths[holders] += counts
            row = term, holders.tobytes(), counts.tobytes()
            self._db.execute("INSERT INTO terms(term, documents, counts) VALUES (?, ?, ?)", row)
            report(f"{written:,} words indexed", None)
        self._db.execute("INSERT INTO text_index VALUES (?)", (lengths.tobytes(),))


class Analyzer:
    """Splits text into FTS5's terms, with an index in memory."""

    def __init__(self) -> None:
        self._db = sqlite3.connect(":memory:", check_same_thread=False)
        self._db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, content='', tokenize='{TOKENIZER}')")
        self._db.execute("CREATE VIRTUAL TABLE v USING fts5vocab(t, 'row')")

    def terms(self, text: str) -> list[str]:
        """Return the terms of a query, sorted and with repetitions; at most `MAX_QUERY_TERMS` different ones."""
        self._db.execute("INSERT INTO t(rowid, x) VALUES (1, ?)", (clean_text(text[:MAX_QUERY_CHARACTERS]),))
        found = self._db.execute("SELECT term, cnt FROM v LIMIT ?", (MAX_QUERY_TERMS,))
        terms = [term for term, count in found for _ in range(count)]
        self._db.execute("INSERT INTO t(t) VALUES ('delete-all')")
        return terms


class TextIndex:
    """Searches an index. Thread-safe.

    Args:
        db: the database, opened with ``check_same_thread=False``.
        lock: held during a search.
    """

    def __init__(self, db: sqlite3.Connection, lock: threading.RLock) -> None:
        self._db, self._lock, self._analyzer = db, lock, Analyzer()
        lengths = np.frombuffer(db.execute("SELECT lengths FROM text_index").fetchone()[0], dtype="<u4")
        self._documents = len(lengths) - 1
        average = max(float(lengths[1:].mean()), 1e-9) if self._documents else 1.0
        self._norms = K1 * (1 - B + B * lengths.astype(np.float64) / average)
        self._scores = np.zeros(len(lengths))

    def search(self, query: str, count: int) -> list[tuple[int, float]]:
        """Return the best ``count`` documents with positive scores, best first, equal ones by number."""
        with self._lock:
            return self._search(query, count)

    def _search(self, query: str, count: int) -> list[tuple[int, float]]:
        scores = self._scores
        scores[:] = 0.0
        asked = Counter(self._analyzer.terms(query))
        found = [(row, times) for term, times in asked.items() if (row := self._postings(term)) is not None]
        for (holders, counts), times in sorted(found, key=lambda one: len(one[0][0])):
            weight = times * idf(self._documents, len(holders))
            frequency = counts.astype(np.float64)
            scores[holders] += weight * (frequency * (K1 + 1) / (frequency + self._norms[holders]))
        touched = np.flatnonzero(scores)
        values = scores[touched]
        if len(touched) > count:
            # Keep everything that ties with the last place, so that numbers decide, not the partition's order.
            keep = values >= np.partition(values, len(values) - count)[len(values) - count]
            touched, values = touched[keep], values[keep]
        order = np.lexsort((touched, -values))[:count]
        return [(int(touched[i]), float(values[i])) for i in order]

    def _postings(self, term: str) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the documents with a term, ascending, and its count in each; None for an unknown term."""
        row = self._db.execute("SELECT documents, counts FROM terms WHERE term = ?", (term,)).fetchone()
        return (np.frombuffer(row[0], dtype="<u4"), np.frombuffer(row[1], dtype="<u2")) if row else None


def clean_text(text: str) -> str:
    """Return text that SQLite accepts: a NUL would end it for some functions, and a lone surrogate cannot be bound."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")


def idf(documents: int, with_term: int) -> float:
    """Return the weight of a term that occurs in ``with_term`` of ``documents`` documents."""
    return max(math.log((documents - with_term + 0.5) / (with_term + 0.5)), MIN_IDF)
