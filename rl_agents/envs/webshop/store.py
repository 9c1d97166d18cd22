"""The product store: one read-only SQLite file with products, instructions and a text index, shared by all sessions.

Results of repeated queries are cached, because the episodes of a group search for the same goal.

A build needs bounded memory for a catalog of any size: files are read value by value, products go straight into SQLite,
posting lists are written one term at a time. An interrupted build leaves nothing behind.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.building import Report, new_database, open_finished, paced, printed
from rl_agents.envs.webshop.records import INSTRUCTIONS, PRODUCT, Goal, Listing, Product, goal_at, goal_count
from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import TextIndex, TextIndexWriter

#: Increases when the layout of the file changes.
FORMAT = 1
HITS = 50
GOAL_KINDS = ("human", "synthetic")
#: Seed of the published shuffle of goals: goal n is the same request as in the papers' environments.
GOAL_SHUFFLE = 233
MAX_GOALS = 10_000_000
_CACHED_QUERIES, _CACHED_PRODUCTS = 8192, 4096


@dataclass(frozen=True, slots=True)
class Hit:
    """A product on a result page."""

    asin: str
    title: str
    price_tag: str


class Store:
    """An opened store; safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            self._db = open_finished(path)
            self.products = int(self._meta("products"))
            self._index = TextIndex(self._db, self._lock)
        except (sqlite3.Error, TypeError) as error:
            raise InputError(f"{path}: this product store is broken; remove it, then it is built again") from error
        self._search = lru_cache(maxsize=_CACHED_QUERIES)(self._ranked)
        self.product = lru_cache(maxsize=_CACHED_PRODUCTS)(self._product)
        self._order = lru_cache(maxsize=None)(self._shuffled)

    def search(self, query: str) -> tuple[Hit, ...]:
        """Return the 50 best products for any text. Its words are the query; nothing in it is syntax."""
        with self._lock:
            return self._search(query)

    def goal_count(self, kind: str) -> int:
        return int(self._meta(f"goals_{kind}"))

    def goal(self, kind: str, number: int) -> Goal:
        """Return goal ``number`` of the shuffled order."""
        count = self.goal_count(kind)
        if not 0 <= number < count:
            raise IndexError(f"goal {number} of {count}")
        place = self._order(kind)[number]
        first, product, instructions = self._row(
            "SELECT first, record, instructions FROM goals JOIN products ON products.id = goals.product "
            "WHERE kind = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (kind, place),
        )
        entry = Listing(PRODUCT.validate_json(product), INSTRUCTIONS.validate_json(instructions))
        return goal_at(entry, kind == "synthetic", place - first)

    def _product(self, asin: str) -> Product | None:
        row = self._row("SELECT record FROM products WHERE asin = ?", (asin,))
        return PRODUCT.validate_json(row[0]) if row else None

    def _ranked(self, query: str) -> tuple[Hit, ...]:
        ids = [document for document, _ in self._index.search(query, HITS)]
        marks = ",".join("?" * len(ids))
        rows = self._db.execute(f"SELECT id, asin, title, price_tag FROM products WHERE id IN ({marks})", ids)
        hits = {number: Hit(*columns) for number, *columns in rows}
        return tuple(hits[number] for number in ids)

    def _shuffled(self, kind: str) -> array[int]:
        count = self.goal_count(kind)
        if count > MAX_GOALS:
            raise InputError(f"{self.path}: {count} {kind} goals are more than the {MAX_GOALS} that can be shuffled")
        order = list(range(count))
        random.Random(GOAL_SHUFFLE).shuffle(order)
        return array("l", order)

    def _meta(self, key: str) -> Any:
        return self._row("SELECT value FROM meta WHERE key = ?", (key,))[0]

    def _row(self, statement: str, values: Sequence[Any]) -> Any:
        with self._lock:
            return self._db.execute(statement, values).fetchone()


_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, asin TEXT UNIQUE, title TEXT, price_tag TEXT, record TEXT, instructions TEXT
);
CREATE TABLE goals (kind TEXT, first INTEGER, product INTEGER, PRIMARY KEY (kind, first)) WITHOUT ROWID;
"""


def build_store(path: Path, entries: Iterable[tuple[Listing, float | None]]) -> None:
    """Write the store to ``path``, at once or not at all; of entries with equal asins the first is kept."""
    with new_database(path) as (db, folder):
        db.executescript(_SCHEMA)
        words = TextIndexWriter(db, str(folder / "words.sqlite"))
        report = paced(printed("[webshop] building the product store"))
        db.execute("BEGIN")
        products, goals = _write_products(db, words, entries, report)
        words.finish(products, report)
        meta = {"products": products, **{f"goals_{kind}": goals[kind] for kind in GOAL_KINDS}}
        db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        db.execute("COMMIT")


def _write_products(
    db: sqlite3.Connection, words: TextIndexWriter, entries: Iterable[tuple[Listing, float | None]], report: Report
) -> tuple[int, dict[str, int]]:
    count, goals = 0, dict.fromkeys(GOAL_KINDS, 0)
    for entry, share in entries:
        product = entry.product
        texts = PRODUCT.dump_json(product).decode(), INSTRUCTIONS.dump_json(entry.instructions).decode()
        row = (count + 1, product.asin, product.title, product.price_tag, *texts)
        if not db.execute("INSERT OR IGNORE INTO products VALUES (?, ?, ?, ?, ?, ?)", row).rowcount:
            continue
        count += 1
        words.add(count, product.document())
        for kind in GOAL_KINDS:
            if more := goal_count(entry, kind == "synthetic"):
                db.execute("INSERT INTO goals VALUES (?, ?, ?)", (kind, goals[kind], count))
                goals[kind] += more
        report(f"{count:,} products read", share)
    return count, goals
