"""WebShop's store and service: ``python -m benchmarks.webshop index`` and ``python -m benchmarks.webshop service``.

``index`` builds the store of a generated catalogue of 200,000 products in a process of its own and asks it 300
requests: seconds, peak memory, size, queries per second, beside SQLite FTS5's own ``bm25()`` over the same texts, whose
rankings must be the same. The step to the full catalogue of 1.18 million products is a multiplication; it says so.

``service`` lets 1,000 sessions play at once against one service process: each searches, opens the first result, goes
back, opens it again and buys, and every purchase's score is compared with the score in this process. Then the service
is killed in the middle and started again: what do sessions notice?
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
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
from rl_agents.envs.webshop.store_writer import build_store
started = time.perf_counter()
build_store(Path(sys.argv[2]), find_catalogue(sys.argv[1]).entries())
print(time.perf_counter() - started, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


# --- index


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
    from rl_agents.retrieval.bm25 import TOKENIZER, Analyzer

    db = sqlite3.connect(folder / "fts.sqlite", isolation_level=None)
    db.execute(f"CREATE VIRTUAL TABLE t USING fts5(x, content='', tokenize='{TOKENIZER}')")
    db.execute("BEGIN")
    for number, record in store._db.execute("SELECT id, record FROM products"):
        db.execute("INSERT INTO t(rowid, x) VALUES (?, ?)", (number, Product.from_json(record).document()))
    db.execute("COMMIT")
    analyzer, equal, seconds = Analyzer(), 0, 0.0
    for query in queries:
        words = {analyzer.terms(word)[0]: word for word in re.findall(r"\w+", query)}  # FTS5 counts repetitions
        match = " OR ".join(f'"{word}"' for word in words.values())
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


# --- service


@dataclass
class Load:
    """What the sessions saw.

    Attributes:
        latencies: seconds of every answered request.
        scores: of every purchase, by task.
        failures: requests without an answer, in words.
    """

    latencies: list[float] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


@contextlib.contextmanager
def running_service(catalogue: str, port: int, workers: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a service process and wait until it answers."""
    command = [sys.executable, "-m", "rl_agents.envs.webshop.service", "--catalogue", catalogue, "--port", str(port)]
    process = subprocess.Popen([*command, "--workers", str(workers)])
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.1)
        yield process
    finally:
        process.terminate()
        process.wait()


async def session(port: int, task_id: str, load: Load, start: asyncio.Event) -> None:
    """Play one session on a connection of its own; a connection that breaks is opened anew, for 30 seconds."""
    connection = Connection(port, load)
    await start.wait()
    turn = await connection.call("/reset", {"task_id": task_id})
    moves = (
        lambda t: f"search[{t['instruction']}]",
        _first,
        lambda t: "click[< prev]",
        _first,
        lambda t: "click[buy now]",
    )
    for move in moves:
        if turn is None:
            return
        body = {"task_id": task_id, "state": turn["state"], "command": move(turn)}
        turn = await connection.call("/step", body)
    if turn is not None:
        load.scores[task_id] = turn["score"]["reward"]
    connection.close()


def _first(turn: dict[str, Any]) -> str:
    return f"click[{turn['page']['items'][0]['asin']}]"


class Connection:
    """HTTP/1.1 with keep-alive over a stream, as small as it can be."""

    def __init__(self, port: int, load: Load) -> None:
        self.port, self.load = port, load
        self.writer: asyncio.StreamWriter | None = None
        self.reader: asyncio.StreamReader | None = None

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        started, reason = time.perf_counter(), ""
        while time.perf_counter() - started < 30:
            try:
                answer = await self._exchange(head.encode() + data)
                self.load.latencies.append(time.perf_counter() - started)
                return answer
            except (OSError, asyncio.IncompleteReadError) as error:
                reason = repr(error)
                self.close()
                await asyncio.sleep(0.25)
        self.load.failures.append(reason)
        return None

    async def _exchange(self, request: bytes) -> dict[str, Any]:
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        self.writer.write(request)
        await self.writer.drain()
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer: dict[str, Any] = json.loads(await self.reader.readexactly(length))
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def play_all(port: int, tasks: list[str]) -> tuple[Load, float]:
    """Play every task at once; return what was seen, and the seconds it took."""
    load, start = Load(), asyncio.Event()
    sessions = [asyncio.create_task(session(port, task, load, start)) for task in tasks]
    await asyncio.sleep(0.5)
    started = time.perf_counter()
    start.set()
    await asyncio.gather(*sessions)
    return load, time.perf_counter() - started


def measure_service(catalogue: str, sessions: int, workers: int) -> dict[str, float]:
    """Play ``sessions`` sessions at once, first in peace, then with the service killed and started again."""
    from rl_agents.envs.webshop.shop import LocalShop

    shop = LocalShop(catalogue)
    tasks = shop.task_ids("train", "human")[:sessions]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with running_service(catalogue, port, workers):
        load, seconds = asyncio.run(play_all(port, tasks))
    figures = {
        "sessions": len(tasks),
        "workers": workers,
        "requests": len(load.latencies),
        "requests per second": len(load.latencies) / seconds,
        "median ms": float(np.median(load.latencies)) * 1e3,
        "p99 ms": float(np.quantile(load.latencies, 0.99)) * 1e3,
        "lost requests": len(load.failures),
        "purchases with the score of this process": sum(load.scores.get(t) == _local_score(shop, t) for t in tasks),
    }
    return {**figures, **_measure_restart(catalogue, port, workers, tasks)}


def _measure_restart(catalogue: str, port: int, workers: int, tasks: list[str]) -> dict[str, float]:
    async def play() -> Load:
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(running_service(catalogue, port, workers))
            playing = asyncio.create_task(play_all(port, tasks))
            await asyncio.sleep(1.0)
            first.kill()
            await asyncio.to_thread(first.wait)
            await asyncio.to_thread(stack.enter_context, running_service(catalogue, port, workers))
            return (await playing)[0]

    load = asyncio.run(play())
    return {"restart: finished sessions": len(load.scores), "restart: lost requests": len(load.failures)}


def _local_score(shop: Any, task_id: str) -> float:
    turn = shop.reset(task_id)
    for command in (f"search[{turn.instruction}]", "", "click[buy now]"):
        turn = shop.step(task_id, turn.state, command or f"click[{turn.page.items[0].asin}]")
    return float(turn.score.reward)


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("index", "service"))
    parser.add_argument("--products", type=int, default=200_000)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    if arguments.what == "index":
        with tempfile.TemporaryDirectory() as folder:
            figures = measure_index(arguments.products, Path(folder))
        figures |= extrapolate(figures)
    else:
        figures = measure_service("generated", arguments.sessions, arguments.workers)
    for name, value in figures.items():
        print(f"{name:70} {value:12.4g}")
    load = os.getloadavg()[0]
    path = write_result(
        f"webshop_{arguments.what}", " ".join(["python -m benchmarks.webshop", *sys.argv[1:]]), [figures], load=load
    )
    print(path)


if __name__ == "__main__":
    main()
