"""Writes product stores, whatever catalogue the products come from.

Memory stays bounded whatever the catalogue's size: files are read value by value, products go straight into SQLite,
posting lists are written one term at a time. Nothing is left behind when a build is cut short.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from rl_agents.data.building import Report, new_database, paced, printed
from rl_agents.envs.webshop.records import Entry, goal_count
from rl_agents.envs.webshop.store import FORMAT, GOAL_KINDS
from rl_agents.retrieval.bm25 import TextIndexWriter

_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, asin TEXT UNIQUE, title TEXT, price_tag TEXT, record TEXT, instructions TEXT
);
CREATE TABLE goals (kind TEXT, first INTEGER, product INTEGER, PRIMARY KEY (kind, first)) WITHOUT ROWID;
"""


def build_store(path: Path, entries: Iterable[tuple[Entry, float | None]], report: Report | None = None) -> None:
    """Write the store of ``entries`` to ``path``, at once or not at all.

    Args:
        entries: products with the share of the source that is read; of equal asins the first stays.
        report: called every few seconds; by default a line on stderr.
    """
    with new_database(path) as (db, folder):
        db.executescript(_SCHEMA)
        words = TextIndexWriter(db, str(folder / "words.sqlite"))
        _write(db, words, entries, paced(report or printed("[webshop] building the product store")))


def _write(
    db: sqlite3.Connection, words: TextIndexWriter, entries: Iterable[tuple[Entry, float | None]], report: Report
) -> None:
    db.execute("BEGIN")
    products, goals = _write_products(db, words, entries, report)
    words.finish(products, report)
    meta = {"format": FORMAT, "products": products, **{f"goals_{kind}": goals[kind] for kind in GOAL_KINDS}}
    db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    db.execute("COMMIT")


def _write_products(
    db: sqlite3.Connection, words: TextIndexWriter, entries: Iterable[tuple[Entry, float | None]], report: Report
) -> tuple[int, dict[str, int]]:
    count, goals = 0, dict.fromkeys(GOAL_KINDS, 0)
    for entry, share in entries:
        product = entry.product
        row = (count + 1, product.asin, product.title, product.price_tag, product.to_json(), entry.instructions_json())
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
