"""A text index inside an SQLite database: posting lists by term, written once, searched with BM25.

It is two tables, ``terms`` and ``text_index``, beside whatever else the database holds. Documents are numbers from 1.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections import OrderedDict
from operator import itemgetter

import numpy as np

from rl_agents.data.building import Report
from rl_agents.retrieval.bm25 import TOKENIZER, Analyzer, Postings, Ranker, clean_text

TABLES = """
CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT UNIQUE, documents BLOB, counts BLOB);
CREATE TABLE text_index (lengths BLOB);
"""
_CACHED_POSTINGS_BYTES = 256 * 2**20


class TextIndexWriter:
    """Collects documents and writes their index. Memory stays bounded when ``scratch`` is a file.

    Args:
        db: a connection outside a transaction.
        scratch: SQLite file for the words until they are written; by default they stay in memory.
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
        """Add document ``number``."""
        self._db.execute("INSERT INTO words.t(rowid, x) VALUES (?, ?)", (number, clean_text(text)))

    def finish(self, documents: int, report: Report) -> None:
        """Write the posting lists of documents 1 to ``documents``, term by term."""
        lengths = np.zeros(documents + 1, dtype=np.uint32)
        occurrences = self._db.execute("SELECT term, doc FROM words.v")  # in the order of terms, then documents
        for written, (term, group) in enumerate(itertools.groupby(occurrences, key=itemgetter(0)), start=1):
            postings = Postings.from_occurrences(map(itemgetter(1), group))
            lengths[postings.documents] += postings.counts
            self._db.execute(
                "INSERT INTO terms(term, documents, counts) VALUES (?, ?, ?)", (term, *postings.to_bytes())
            )
            report(f"{written:,} words indexed", None)
        self._db.execute("INSERT INTO text_index VALUES (?)", (lengths.astype("<u4").tobytes(),))


class TextIndex:
    """Searches an index. Safe to use from several threads.

    A search takes about a millisecond per 100,000 documents.

    Args:
        db: the database, opened with ``check_same_thread=False``.
        lock: held while it is read.
    """

    def __init__(self, db: sqlite3.Connection, lock: threading.RLock) -> None:
        self._db, self._lock = db, lock
        self._analyzer = Analyzer()
        lengths = np.frombuffer(db.execute("SELECT lengths FROM text_index").fetchone()[0], dtype="<u4")
        self._cache: OrderedDict[str, Postings | None] = OrderedDict()
        self._cached_bytes = 0
        self._ranker = Ranker(lengths, self._postings)

    def search(self, query: str, count: int) -> list[tuple[int, float]]:
        """Return the best ``count`` documents with their scores, best first, equal ones by number.

        Any text is a query: its words count, nothing in it is syntax.
        """
        with self._lock:
            return self._ranker.top(self._analyzer.terms(query), count)

    def _postings(self, term: str) -> Postings | None:
        """Look a term up; the lists used last are kept, up to 256 MiB."""
        if term in self._cache:
            self._cache.move_to_end(term)
            return self._cache[term]
        row = self._db.execute("SELECT documents, counts FROM terms WHERE term = ?", (term,)).fetchone()
        postings = Postings.from_bytes(*row) if row else None
        self._cache[term] = postings
        self._cached_bytes += _size(postings)
        while self._cached_bytes > _CACHED_POSTINGS_BYTES and len(self._cache) > 1:
            self._cached_bytes -= _size(self._cache.popitem(last=False)[1])
        return postings


def _size(postings: Postings | None) -> int:
    """Bytes in the cache, with something for the entry itself."""
    return 200 + (0 if postings is None else postings.documents.nbytes + postings.counts.nbytes)
