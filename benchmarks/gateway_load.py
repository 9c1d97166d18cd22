"""How much a gateway bears: ``python -m benchmarks.gateway_load --sessions 1000``.

A server process holds a `Gateway` with a stub engine, which answers with fixed tokens after ``--engine-ms``, and a pool
on disk. The clients are another process with plain HTTP over keep-alive connections, one per session: each session
makes ``--calls`` calls, extends its history as a chat does, and thinks between two calls. Twice: at a rate that many
agents make (``--think-s``), for the latency that the gateway adds, and without pauses, for the most calls a second.
Afterwards the pool is counted: every answered call has to be there once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.grid import RESULTS
from rl_agents.chat.template import ChatTemplate
from rl_agents.inference.base import Completion, Sampling
from rl_agents.store.reader import PoolReader

WORDS = [
    "the",
    "agent",
    "looks",
    "at",
    "what",
    "the",
    "tool",
    "has",
    "said",
    "and",
    "asks",
    "for",
    "more",
    "of",
    "it",
    "before",
    "it",
    "answers",
]


class StubEngine:
    """Answers with the same tokens after a fixed time, so that all that is measured is the gateway's."""

    def __init__(self, answer: list[int], seconds: float) -> None:
        self._answer, self._seconds = answer, seconds

    async def generate(self, prompt_ids: Any, sampling: Sampling) -> Completion:
        """Wait and answer."""
        await asyncio.sleep(self._seconds)
        return Completion(list(self._answer), [-0.5] * len(self._answer), 1, "stop")

    async def sync(self, weights: Any, version: int) -> None:
        """Nothing changes."""

    def close(self) -> None:
        """Nothing to free."""


def main() -> None:
    """Measure both loads, print and write results/gateway_load.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--think-s", type=float, default=10.0)
    parser.add_argument("--engine-ms", type=float, default=50.0)
    parser.add_argument("--serve", metavar="POOL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        asyncio.run(serve(Path(args.serve), args.engine_ms / 1000))
        return
    results = {
        name: load(args.sessions, args.calls, think_s, args.engine_ms)
        for name, think_s in (("agents", args.think_s), ("flat out", 0.0))
    }
    print(json.dumps(results, indent=1))
    (RESULTS / "gateway_load.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


async def serve(pool: Path, engine_s: float) -> None:
    """The server process: prints its address and admin key, ends with its standard input."""
    from rl_agents.gateway.calls import GatewayLimits
    from rl_agents.gateway.gateway import Gateway
    from rl_agents.gateway.server import serving
    from rl_agents.store.trajectory_store import PoolWriter

    template = ChatTemplate(tokenizer())
    engine = StubEngine([*template.tokenizer.encode("look at the tool"), template.end_of_turn], engine_s)
    with PoolWriter(pool) as writer:
        gateway = Gateway(engine, template, GatewayLimits(max_model_len=4096, max_response_tokens=64), writer)
        async with serving(gateway, "a" * 32) as url:
            print(url, flush=True)
            await asyncio.to_thread(sys.stdin.read)


def tokenizer() -> Any:
    """A word tokenizer with a chat template."""
    from rl_agents.envs.small_model import word_tokenizer

    return word_tokenizer(sorted(set(WORDS)), (), 4096)


def load(sessions: int, calls: int, think_s: float, engine_ms: float) -> dict[str, Any]:
    """Start a server, load it, count what its pool holds."""
    with tempfile.TemporaryDirectory() as scratch:
        pool = Path(scratch) / "pool.sqlite"
        command = [sys.executable, "-m", "benchmarks.gateway_load", "--serve", str(pool), "--engine-ms", str(engine_ms)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None and server.stdin is not None
        address = server.stdout.readline().strip()
        process = psutil.Process(server.pid)
        before = process.cpu_times().user + process.cpu_times().system
        started = time.monotonic()
        latencies = asyncio.run(clients(address, sessions, calls, think_s))
        seconds = time.monotonic() - started
        cpu = process.cpu_times().user + process.cpu_times().system - before
        memory = process.memory_info().rss
        server.stdin.close()
        server.wait(60)
        with PoolReader(pool) as reader:
            kept = sum(1 for _ in reader.calls())
            finished = sum(exchange.state == "finished" for exchange in reader.exchanges())
        overhead = np.array(latencies) * 1000 - engine_ms
        return {
            "sessions": sessions,
            "calls": len(latencies),
            "lost": sessions * calls - len(latencies),
            "in the pool": kept,
            "finished": finished,
            "calls per second": round(len(latencies) / seconds, 1),
            "overhead ms (p50, p95, p99)": [round(float(np.percentile(overhead, q)), 1) for q in (50, 95, 99)],
            "server CPU ms per call": round(1000 * cpu / len(latencies), 2),
            "server memory MiB": round(memory / 2**20),
            "pool bytes per call": round(pool.stat().st_size / max(kept, 1)),
        }


async def clients(address: str, sessions: int, calls: int, think_s: float) -> list[float]:
    """Open all sessions and play them at once; return the seconds of every answered call."""
    host, port = address.removeprefix("http://").split(":")
    keys = [await opened(host, int(port), number) for number in range(sessions)]
    latencies: list[float] = []
    rng = random.Random(0)
    starts = [rng.uniform(0, think_s) for _ in range(sessions)]
    await asyncio.gather(
        *(play(host, int(port), key, calls, wait, think_s, latencies) for key, wait in zip(keys, starts, strict=True))
    )
    return latencies


async def opened(host: str, port: int, number: int) -> str:
    """Open a session and return its key."""
    reader, writer = await asyncio.open_connection(host, port)
    body = {"session": f"s{number}", "group_id": number // 8, "member": number % 8, "seed": number, "task_id": "load"}
    answer = await post(reader, writer, "/rl/sessions", "a" * 32, body)
    writer.close()
    return str(answer["key"])


async def play(host: str, port: int, key: str, calls: int, wait: float, think_s: float, latencies: list[float]) -> None:
    """One agent: calls, each with the whole history, and pauses between them."""
    await asyncio.sleep(wait)
    reader, writer = await asyncio.open_connection(host, port)
    messages: list[dict[str, str]] = [{"role": "user", "content": " ".join(WORDS * 2)}]
    for _ in range(calls):
        started = time.monotonic()
        answer = await post(reader, writer, "/v1/chat/completions", key, {"model": "policy", "messages": messages})
        latencies.append(time.monotonic() - started)
        content = answer["choices"][0]["message"]["content"]
        messages += [{"role": "assistant", "content": content}, {"role": "user", "content": " ".join(WORDS)}]
        await asyncio.sleep(think_s)
    writer.close()


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, key: str, data: dict[str, Any]
) -> dict[str, Any]:
    """Send one request over a connection that stays, and return the body: a client library would cost more than the
    server does."""
    body = json.dumps(data).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(int(line.split(":")[1]) for line in head.splitlines() if line.startswith("content-length"))
    answer: dict[str, Any] = json.loads(await reader.readexactly(length))
    if " 200 " not in head.splitlines()[0] and " 201 " not in head.splitlines()[0]:
        raise RuntimeError(f"{path}: {head.splitlines()[0]} {answer}")
    return answer


if __name__ == "__main__":
    main()
