"""Passages, and the store that searches them: in memory, or in an index file that is built once into the cache.

A passage in a table has one of these forms:

| form | keys |
|---|---|
| ours, BEIR's corpora | ``text``; optionally ``title`` and ``id`` (or ``_id``) |
| the Wikipedia dumps of search agents | ``contents``: the title in quotes, a line break, the text; ``id`` |

The id of a passage without one is its place in the file, from 1.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from rl_agents.data.building import Report, cached_file, new_database, open_finished, paced, printed
from rl_agents.data.tables import fingerprint, object_of, open_table, table_files, text_of
from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import TextIndex, TextIndexWriter, clean_text


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that a search returns as a whole."""

    id: str
    title: str
    text: str


def read_passages(name: str | Path) -> Iterator[tuple[Passage, float]]:
    """Yield the passages of a table (`rl_agents.data.tables`) in order, each with the share of the table read so far.

    Raises:
        InputError: the table or a passage cannot be read; the message names file, line and reason.
    """
    for count, row in enumerate(open_table(name), start=1):
        try:
            yield passage_from_record(row.record(), count), row.share
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from error


def passage_from_record(record: Any, number: int) -> Passage:
    """Read one passage; ``number`` is its place. Raises `ValueError`: the record is not a passage."""
    record = object_of(record, "a passage")
    name = record.get("id", record.get("_id", number))
    if not isinstance(name, str | int) or isinstance(name, bool) or name == "":
        raise ValueError(f"id is {name!a}, not a text or a number")
    if "contents" in record and "text" not in record:
        title, _, text = text_of(record, "contents", least=0).partition("\n")
        return Passage(str(name), title.strip().removeprefix('"').removesuffix('"'), text)
    title = text_of(record, "title", least=0) if "title" in record else ""
    return Passage(str(name), title, text_of(record, "text", least=0))


#: Increased when the layout of the file changes.
FORMAT = 1
#: Most hits of one search.
MAX_HITS = 1000
CACHED_QUERIES = 8192

#: Passages with the share of their source read so far (None if unknown).
Sourced = Iterable[tuple[Passage, float | None]]

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE passages (id INTEGER PRIMARY KEY, name TEXT UNIQUE, title TEXT, text TEXT);
"""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that a search found. Scores are comparable within one search only."""

    passage: Passage
    score: float


class PassageStore:
    """Passages with a BM25 index over titles and texts. Read-only and thread-safe.

    Create one with `build`, `open` or `cached`.

    Attributes:
        path: the index file; None for a store in memory.
    """

    def __init__(self, db: sqlite3.Connection, path: Path | None = None) -> None:
        self.path = path
        self._db, self._lock = db, threading.RLock()
        self._count = int(db.execute("SELECT value FROM meta WHERE key = 'passages'").fetchone()[0])
        self._index = TextIndex(db, self._lock)
        self._search = lru_cache(maxsize=CACHED_QUERIES)(self._ranked)

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> PassageStore:
        """Index ``passages`` in memory. Raises `InputError`: two passages have the same id."""
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        db.executescript(_SCHEMA)
        words = TextIndexWriter(db)
        _write(db, words, ((passage, None) for passage in passages), lambda text, share: None)
        return cls(db)

    @classmethod
    def open(cls, name: str | Path) -> PassageStore:
        """Open a table of passages (forms: see the module) through an index in the cache.

        Raises:
            InputError: it is missing, or a line is wrong; the message names the line.
        """
        return cls.cached(Path(name).stem, fingerprint(table_files(str(name))), lambda: read_passages(name))

    @classmethod
    def cached(cls, name: str, version: str, passages: Callable[[], Sourced]) -> PassageStore:
        """Open the index of ``passages`` from the cache, and build it first if the cache does not have it.

        Args:
            name: readable part of the file's name.
            version: changes when the passages change.
            passages: yields them, with the share of the source read so far.

        Raises:
            InputError: two passages have the same id; or an error of ``passages``.
        """
        build = partial(_build_file, name=name, passages=passages)
        return open_index(cached_file("passages", name, f"{FORMAT}/{version}", build))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Passage]:
        number = 0
        while rows := self._rows(
            "SELECT id, name, title, text FROM passages WHERE id > ? ORDER BY id LIMIT 1000", number
        ):
            yield from (Passage(*columns) for _, *columns in rows)
            number = rows[-1][0]

    def __contains__(self, name: object) -> bool:
        return bool(self._rows("SELECT 1 FROM passages WHERE name = ?", name))

    def get(self, name: str) -> Passage:
        """Return the passage with the id ``name``. Raises `KeyError`: no such passage."""
        rows = self._rows("SELECT name, title, text FROM passages WHERE name = ?", name)
        if not rows:
            raise KeyError(name)
        return Passage(*rows[0])

    def search(self, query: str, count: int) -> list[Hit]:
        """Return the best ``count`` passages (1 to 1000) that share a word with ``query``, best first.

        Passages with equal scores keep their order. Any text is a query; nothing in it is syntax.
        """
        if not 1 <= count <= MAX_HITS:
            raise ValueError(f"count is {count}, not between 1 and {MAX_HITS}")
        with self._lock:
            return list(self._search(query, count))

    def _ranked(self, query: str, count: int) -> tuple[Hit, ...]:
        found = self._index.search(query, count)
        marks = ",".join("?" * len(found))
        rows = self._rows(f"SELECT id, name, title, text FROM passages WHERE id IN ({marks})", *(n for n, _ in found))
        passages = {number: Passage(*columns) for number, *columns in rows}
        return tuple(Hit(passages[number], score) for number, score in found)

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._lock:
            return self._db.execute(statement, values).fetchall()


def _write(db: sqlite3.Connection, words: TextIndexWriter, passages: Sourced, report: Report) -> None:
    db.execute("BEGIN")
    count = 0
    for passage, share in passages:
        row = tuple(map(clean_text, (passage.id, passage.title, passage.text)))
        try:
            db.execute("INSERT INTO passages VALUES (?, ?, ?, ?)", (count + 1, *row))
        except sqlite3.IntegrityError:
            raise InputError(f"two passages with the id {passage.id!a}") from None
        count += 1
        words.add(count, f"{row[1]}\n{row[2]}")
        report(f"{count:,} passages read", share)
    words.finish(count, report)
    db.executemany("INSERT INTO meta VALUES (?, ?)", {"format": FORMAT, "passages": count}.items())
    db.execute("COMMIT")


@lru_cache(maxsize=8)
def open_index(path: Path) -> PassageStore:
    """Open an index file that `PassageStore.cached` built. Raises `InputError`: it is missing or broken."""
    try:
        return PassageStore(open_finished(path), path)
    except (sqlite3.Error, TypeError) as error:
        raise InputError(f"{path}: this index is broken; remove it, then it is built again") from error


def _build_file(path: Path, name: str, passages: Callable[[], Sourced]) -> None:
    with new_database(path) as (db, folder):
        db.executescript(_SCHEMA)
        words = TextIndexWriter(db, str(folder / "words.sqlite"))
        _write(db, words, passages(), paced(printed(f"[retrieval] indexing {name}")))
