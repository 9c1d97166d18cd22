"""WebShop's store: ``python -m benchmarks.webshop index``.

It builds the store of a generated catalogue of 200,000 products in a process of its own and asks it 300 requests:
seconds, peak memory, size, queries per second, beside SQLite FTS5's own ``bm25()`` over the same texts, whose rankings
must be the same. The step to the full catalogue of 1.18 million products is a multiplication; it says so.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import write_result

FULL_CATALOGUE = 1_180_000
QUERIES = 300
FTS_QUERIES = 30
BUILD = """
import resource, sys, time
from pathlib import Path
from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.store import build_store
started = time.perf_counter()
build_store(Path(sys.argv[2]), find_catalogue(sys.argv[1]).entries())
print(time.perf_counter() - started, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def measure_index(products: int, folder: Path) -> dict[str, float]:
    """Build a store of ``products`` and query it."""
    from rl_agents.envs.webshop.store import Store

    path = folder / "store.sqlite"
    command = [sys.executable, "-c", BUILD, f"generated:{products}", str(path)]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    store = Store(path)
    queries = [store.goal("human", number).instruction for number in range(QUERIES)]
    store.search(queries[0])
    started, cpu = time.perf_counter(), time.process_time()
    for query in queries:
        store.search(query)
    seconds, cpu = (time.perf_counter() - started) / QUERIES, (time.process_time() - cpu) / QUERIES
    figures = {
        "products": products,
        "build seconds": float(built[0]),
        "build CPU seconds": float(built[1]),
        "build peak MiB": float(built[2]),
        "store MiB": path.stat().st_size / 2**20,
        "query CPU ms": cpu * 1e3,
        "queries per second": 1 / seconds,
    }
    return {**figures, **_compare_with_fts5(store, folder, queries[:FTS_QUERIES])}


def _compare_with_fts5(store: Any, folder: Path, queries: list[str]) -> dict[str, float]:
    """Ask FTS5's own ranking the same; the order must be equal, places of equal score aside."""
    from rl_agents.envs.webshop.records import Product
    from rl_agents.retrieval.bm25 import TOKENIZER

    db = sqlite3.connect(folder / "fts.sqlite", isolation_level=None)
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, content='', tokenize='{TOKENIZER}')")
    db.execute("BEGIN")
    for number, record in store._db.execute("SELECT id, record FROM products"):
        db.execute("INSERT INTO t(rowid, x) VALUES (?, ?)", (number, Product.from_json(record).document()))
    db.execute("COMMIT")
    equal, seconds = 0, 0.0
    for query in queries:
        match = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))  # FTS5 counts repetitions, and so do we
        started = time.process_time()
        rows = db.execute(
            "SELECT rowid, -bm25(t) FROM t WHERE t MATCH ? ORDER BY bm25(t), rowid LIMIT 50", (match,)
        ).fetchall()
        seconds += time.process_time() - started
        ours = store._index.search(query, 50)
        equal += np.allclose([score for _, score in rows], [score for _, score in ours], rtol=1e-9)
    return {"FTS5 bm25() query CPU ms": seconds / len(queries) * 1e3, "share of equal rankings": equal / len(queries)}


def extrapolate(figures: dict[str, float]) -> dict[str, float]:
    """Multiply to the full catalogue; memory grows with the posting list of the commonest word and document lengths."""
    factor = FULL_CATALOGUE / figures["products"]
    names = ("build CPU seconds", "store MiB", "query CPU ms", "FTS5 bm25() query CPU ms")
    return {f"{name}, {FULL_CATALOGUE:,} products (extrapolated)": figures[name] * factor for name in names}


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("index",))
    parser.add_argument("--products", type=int, default=200_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure_index(arguments.products, Path(folder))
    figures |= extrapolate(figures)
    for name, value in figures.items():
        print(f"{name:70} {value:12.4g}")
    load = os.getloadavg()[0]
    path = write_result(
        f"webshop_{arguments.what}", " ".join(["python -m benchmarks.webshop", *sys.argv[1:]]), [figures], load=load
    )
    print(path)


if __name__ == "__main__":
    main()
