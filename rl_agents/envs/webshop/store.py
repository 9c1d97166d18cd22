"""The product store: one SQLite file with products, instructions and a text index; read only, shared by all sessions.

`rl_agents.envs.webshop.index` writes these files. Results are kept for queries that come again, as they do within a
group of episodes of one goal.
"""

from __future__ import annotations

import random
import sqlite3
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.webshop.records import Entry, Goal, Product, goal_at
from rl_agents.errors import InputError, unknown
from rl_agents.retrieval.bm25 import TextIndex

#: Counts up when the layout of the file changes.
FORMAT = 1
HITS = 50
GOAL_KINDS = ("human", "synthetic")
#: Seed of the published shuffle of goals: goal n is the same request as in the papers' environments.
GOAL_SHUFFLE = 233
MAX_GOALS = 10_000_000
_CACHED_QUERIES, _CACHED_PRODUCTS = 8192, 4096


@dataclass(frozen=True, slots=True)
class Hit:
    """A product as a result page lists it."""

    asin: str
    title: str
    price_tag: str


class Store:
    """An opened store; safe to use from several threads.

    Raises:
        InputError: the file is missing, or not a store of this version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._db = _connect(path)
        self.products = int(self._meta("products"))
        self._index = TextIndex(self._db, self._lock)
        self._search = lru_cache(maxsize=_CACHED_QUERIES)(self._ranked)
        self.product = lru_cache(maxsize=_CACHED_PRODUCTS)(self._product)
        self._order = lru_cache(maxsize=None)(self._shuffled)

    def search(self, query: str) -> tuple[Hit, ...]:
        """Return the 50 best products for any text; its words are the query, nothing in it is syntax."""
        with self._lock:
            return self._search(query)

    def goal_count(self, kind: str) -> int:
        """Return how many goals of a kind (``human`` or ``synthetic``) there are."""
        if kind not in GOAL_KINDS:
            raise unknown("kind of goals", kind, GOAL_KINDS)
        return int(self._meta(f"goals_{kind}"))

    def goal(self, kind: str, number: int) -> Goal:
        """Return goal ``number`` of the shuffled order.

        Raises:
            IndexError: there are not so many.
        """
        count = self.goal_count(kind)
        if not 0 <= number < count:
            raise IndexError(f"goal {number} of {count}")
        place = self._order(kind)[number]
        first, product, instructions = self._row(
            "SELECT first, record, instructions FROM goals JOIN products ON products.id = goals.product "
            "WHERE kind = ? AND first <= ? ORDER BY first DESC LIMIT 1",
            (kind, place),
        )
        return goal_at(Entry.from_json(product, instructions), kind == "synthetic", place - first)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _product(self, asin: str) -> Product | None:
        row = self._row("SELECT record FROM products WHERE asin = ?", (asin,))
        return Product.from_json(row[0]) if row else None

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


@lru_cache(maxsize=8)
def open_store(path: Path) -> Store:
    """Open a store once per process."""
    return Store(path)


def _connect(path: Path) -> sqlite3.Connection:
    if not path.is_file():
        raise InputError(f"{path}: no such product store")
    try:
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        stored = db.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    except sqlite3.Error as error:
        raise InputError(f"{path}: not a WebShop product store ({error})") from error
    if stored is None or stored[0] != FORMAT:
        raise InputError(f"{path}: a product store of another version; build it again")
    return db
