"""Writes product stores: from official files in a folder, or from a generated catalogue.

    python -m rl_agents.envs.webshop.index FOLDER [OUTPUT.sqlite]

Memory stays bounded whatever the catalogue's size: files are read value by value, products go straight into SQLite,
posting lists are written one term at a time. Nothing is left behind when a build is cut short.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import numpy as np

from rl_agents.envs.webshop.ranking import TOKENIZER, Postings
from rl_agents.envs.webshop.records import Entry, goal_count
from rl_agents.envs.webshop.store import FORMAT, GOAL_KINDS

SECONDS_BETWEEN_REPORTS = 5.0

#: Called with what is being done and the share that is done (None when unknown).
Report = Callable[[str, float | None], None]

_SCHEMA = """
PRAGMA page_size = 8192;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -32000;
CREATE TABLE meta (key TEXT PRIMARY KEY, value);
CREATE TABLE products (
    id INTEGER PRIMARY KEY, asin TEXT UNIQUE, title TEXT, price_tag TEXT, record TEXT, instructions TEXT
);
CREATE TABLE goals (kind TEXT, first INTEGER, product INTEGER, PRIMARY KEY (kind, first)) WITHOUT ROWID;
CREATE TABLE terms (id INTEGER PRIMARY KEY, term TEXT UNIQUE, documents BLOB, counts BLOB);
CREATE TABLE text_index (lengths BLOB);
"""


def build_store(path: Path, entries: Iterable[tuple[Entry, float | None]], report: Report | None = None) -> None:
    """Write the store of ``entries`` to ``path``, at once or not at all.

    Args:
        entries: products with the share of the source that is read; of equal asins the first stays.
        report: called every few seconds; by default a line on stderr.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".webshop-", dir=path.parent) as folder:
        unfinished = Path(folder) / "store.sqlite"
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
            db.executescript(_SCHEMA)
            db.execute("ATTACH DATABASE ? AS words", (str(Path(folder) / "words.sqlite"),))
            _write(db, entries, _paced(report or _print_report))
        os.replace(unfinished, path)


def _write(db: sqlite3.Connection, entries: Iterable[tuple[Entry, float | None]], report: Report) -> None:
    db.executescript(
        "PRAGMA words.journal_mode = OFF; PRAGMA words.synchronous = OFF;"
        f"CREATE VIRTUAL TABLE words.t USING fts5(x, content='', tokenize='{TOKENIZER}');"
        "CREATE VIRTUAL TABLE words.v USING fts5vocab(t, 'instance');"
    )
    db.execute("BEGIN")
    products, goals = _write_products(db, entries, report)
    _write_terms(db, products, report)
    meta = {"format": FORMAT, "products": products, **{f"goals_{kind}": goals[kind] for kind in GOAL_KINDS}}
    db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    db.execute("COMMIT")


def _write_products(
    db: sqlite3.Connection, entries: Iterable[tuple[Entry, float | None]], report: Report
) -> tuple[int, dict[str, int]]:
    count, goals = 0, dict.fromkeys(GOAL_KINDS, 0)
    for entry, share in entries:
        product = entry.product
        row = (count + 1, product.asin, product.title, product.price_tag, product.to_json(), entry.instructions_json())
        if not db.execute("INSERT OR IGNORE INTO products VALUES (?, ?, ?, ?, ?, ?)", row).rowcount:
            continue
        count += 1
        db.execute("INSERT INTO words.t(rowid, x) VALUES (?, ?)", (count, product.document()))
        for kind in GOAL_KINDS:
            if more := goal_count(entry, kind == "synthetic"):
                db.execute("INSERT INTO goals VALUES (?, ?, ?)", (kind, goals[kind], count))
                goals[kind] += more
        report(f"{count:,} products read", share)
    return count, goals


def _write_terms(db: sqlite3.Connection, products: int, report: Report) -> None:
    lengths = np.zeros(products + 1, dtype=np.uint32)
    occurrences = db.execute("SELECT term, doc FROM words.v")  # in the order of terms, then documents
    for written, (term, group) in enumerate(itertools.groupby(occurrences, key=itemgetter(0)), start=1):
        postings = Postings.from_occurrences(map(itemgetter(1), group))
        lengths[postings.documents] += postings.counts
        db.execute("INSERT INTO terms(term, documents, counts) VALUES (?, ?, ?)", (term, *postings.to_bytes()))
        report(f"{written:,} words indexed", None)
    db.execute("INSERT INTO text_index VALUES (?)", (lengths.astype("<u4").tobytes(),))


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a lock beside ``path``: of several processes that want the same file, one builds it and the others wait."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _paced(report: Report) -> Report:
    started = last = time.monotonic()

    def paced(text: str, share: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS:
            last = now
            report(f"{text}, {now - started:.0f} s", share)

    return paced


def _print_report(text: str, share: float | None) -> None:
    done = "" if share is None else f" ({share:.0%} of the file)"
    print(f"[webshop] building the product store: {text}{done}", file=sys.stderr, flush=True)


def main() -> None:
    """Build a store from the command line."""
    from rl_agents.envs.webshop.catalogue import find_catalogue

    parser = argparse.ArgumentParser(description="Build a WebShop product store, once, from the official files.")
    parser.add_argument("catalogue", help="folder with items_shuffle*.json and the instruction files, or a name")
    parser.add_argument("output", nargs="?", type=Path, help="file to write; by default in the cache of rl_agents")
    arguments = parser.parse_args()
    catalogue = find_catalogue(arguments.catalogue)
    path = arguments.output or catalogue.cached_path()
    build_store(path, catalogue.entries())
    print(path)


if __name__ == "__main__":
    main()
