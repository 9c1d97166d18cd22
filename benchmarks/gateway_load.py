"""How much a gateway bears: ``python -m benchmarks.gateway_load --sessions 1000``.

A server process holds a `Gateway` with an engine that answers with fixed tokens after ``--engine-ms``, and a pool on
disk. The clients are this process with plain HTTP over keep-alive connections, one per session: each session makes
``--calls`` calls, extends its history as a chat does, and thinks between two calls. Twice: at a rate that many agents
make (``--think-s``), for the latency that the gateway adds, and without pauses, for the most calls a second. Afterwards
the pool is counted: every answered call has to be there once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.grid import RESULTS
from benchmarks.timing import StubEngine, server
from rl_agents.chat.template import ChatTemplate
from rl_agents.store.reader import PoolReader

TEXT = "the agent looks at what the tool has said and asks for more of it before it answers"
ADMIN = "a" * 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--think-s", type=float, default=10.0)
    parser.add_argument("--engine-ms", type=float, default=50.0)
    parser.add_argument("--name", default="gateway_load", help="results/NAME.json")
    parser.add_argument("--serve", metavar="POOL", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return asyncio.run(serve(Path(args.serve), args.engine_ms / 1000))
    results = {name: load(args, think_s) for name, think_s in (("agents", args.think_s), ("flat out", 0.0))}
    print(json.dumps(results, indent=1))
    (RESULTS / f"{args.name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return None


async def serve(pool: Path, engine_s: float) -> None:
    """The server process: prints its address and admin key, ends with its standard input."""
    from rl_agents.envs.small_model import word_tokenizer
    from rl_agents.gateway.calls import GatewayLimits
    from rl_agents.gateway.gateway import Gateway
    from rl_agents.gateway.server import serving
    from rl_agents.store.trajectory_store import PoolWriter

    template = ChatTemplate(word_tokenizer(sorted(set(TEXT.split())), (), 4096))
    engine = StubEngine(template.tokenizer, lambda sampling: "look at the tool", engine_s)
    with PoolWriter(pool) as writer:
        gateway = Gateway(engine, template, GatewayLimits(max_model_len=4096, max_response_tokens=64), writer)
        async with serving(gateway, ADMIN) as url:
            print(url, flush=True)
            await asyncio.to_thread(sys.stdin.read)


def load(args: argparse.Namespace, think_s: float) -> dict[str, Any]:
    """Start a server, load it, count what its pool holds."""
    with tempfile.TemporaryDirectory() as scratch:
        pool = Path(scratch) / "pool.sqlite"
        command = ("-m", "benchmarks.gateway_load", "--serve", str(pool), "--engine-ms", str(args.engine_ms))
        with server(*command) as (process, address):
            watched = psutil.Process(process.pid)
            before, began = sum(watched.cpu_times()[:2]), time.monotonic()
            latencies = asyncio.run(clients(address, args.sessions, args.calls, think_s))
            seconds, cpu = time.monotonic() - began, sum(watched.cpu_times()[:2]) - before
            memory = watched.memory_info().rss
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        with PoolReader(pool) as reader:
            kept = sum(1 for _ in reader.calls())
            finished = sum(exchange.state == "finished" for exchange in reader.exchanges())
        overhead = np.array(latencies) * 1000 - args.engine_ms
        return {
            "sessions": args.sessions,
            "calls": len(latencies),
            "lost": args.sessions * args.calls - len(latencies),
            "in the pool": kept,
            "finished": finished,
            "calls per second": round(len(latencies) / seconds, 1),
            "overhead ms (p50, p95, p99)": [round(float(np.percentile(overhead, q)), 1) for q in (50, 95, 99)],
            "server CPU ms per call": round(1000 * cpu / len(latencies), 2),
            "server memory MiB": round(memory / 2**20),
            "pool bytes per call": round(pool.stat().st_size / max(kept, 1)),
        }


async def clients(address: str, sessions: int, calls: int, think_s: float) -> list[float]:
    """Open all sessions and run them at once; return the seconds of every answered call."""
    host, port = address.removeprefix("http://").split(":")
    latencies: list[float] = []
    rng = random.Random(0)

    async def opened(number: int) -> str:
        reader, writer = await asyncio.open_connection(host, int(port))
        body = {
            "session": f"s{number}",
            "group_id": number // 8,
            "member": number % 8,
            "seed": number,
            "task_id": "load",
        }
        answer = await post(reader, writer, "/rl/sessions", ADMIN, body)
        writer.close()
        return str(answer["key"])

    async def agent(key: str, wait: float) -> None:
        await asyncio.sleep(wait)
        reader, writer = await asyncio.open_connection(host, int(port))
        messages: list[dict[str, str]] = [{"role": "user", "content": f"{TEXT} {TEXT}"}]
        for _ in range(calls):
            began = time.monotonic()
            answer = await post(reader, writer, "/v1/chat/completions", key, {"model": "policy", "messages": messages})
            latencies.append(time.monotonic() - began)
            content = answer["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": TEXT}]
            await asyncio.sleep(think_s)
        writer.close()

    keys = [await opened(number) for number in range(sessions)]
    await asyncio.gather(*(agent(key, rng.uniform(0, think_s)) for key in keys))
    return latencies


async def post(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, key: str, data: dict[str, Any]
) -> dict[str, Any]:
    """Send one request over a connection that stays: a client library would cost more than the server does."""
    body = json.dumps(data).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
    length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length"))
    answer: dict[str, Any] = json.loads(await reader.readexactly(length))
    if " 200 " not in status and " 201 " not in status:
        raise RuntimeError(f"{path}: {status} {answer}")
    return answer


if __name__ == "__main__":
    main()
