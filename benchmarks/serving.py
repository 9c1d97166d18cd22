"""A server under load on loopback: ``python -m benchmarks.serving``.

Starts ``run.py serve`` in a process of its own with guess_numbers' starter model, and asks it from this one, which
shares the machine's cores with it. Measured: answers per second and their latencies at several concurrencies, the
first token of streamed answers, agent turns in sessions, what happens above the queue's limits, and checkpoints that
are rolled in one after another under load.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil

from benchmarks.report import write_figures
from rl_agents.algorithms import Settings
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import ensure_model

NAME = "starter"
QUESTION = "3 of 4 : 134 0A3B"
QUEUED = 64
START_S = 300
WARM_UP_S = 3.0
OVERLOAD = 400
ROLLS = 20


@dataclass
class Load:
    """What a number of clients saw who each ask again as soon as they are answered."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    refused: list[float] = field(default_factory=list)
    tokens: int = 0
    labels: Counter[str] = field(default_factory=Counter)

    def figures(self) -> dict[str, float]:
        """Rates and latencies in milliseconds."""
        figures = {
            "answers": len(self.latencies),
            "answers/s": len(self.latencies) / self.seconds,
            "tokens/s": self.tokens / self.seconds,
            "p50 ms": _ms(self.latencies, 50),
            "p99 ms": _ms(self.latencies, 99),
            "failed": sum(self.statuses.values()) - self.statuses[200] - self.statuses[429],
            "refused (429)": self.statuses[429],
        }
        if self.first:
            figures |= {"first token p50 ms": _ms(self.first, 50), "first token p99 ms": _ms(self.first, 99)}
        if self.refused:
            figures |= {"refusal p50 ms": _ms(self.refused, 50), "refusal p99 ms": _ms(self.refused, 99)}
        return {name: round(value, 2) for name, value in figures.items()}


class Bench:
    """A running server and a client."""

    def __init__(self, url: str, process: subprocess.Popen[bytes], models: list[Path]) -> None:
        self.url, self.process, self.models = url, process, models

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[aiohttp.ClientSession]:
        """Open a client without a limit of connections."""
        async with aiohttp.ClientSession(self.url, connector=aiohttp.TCPConnector(limit=0)) as client:
            yield client

    async def ask(self, client: aiohttp.ClientSession, load: Load, **fields: Any) -> None:
        """One answer."""
        question = {"model": NAME, "messages": [{"role": "user", "content": QUESTION}], **fields}
        started = time.perf_counter()
        async with client.post("/v1/chat/completions", json=question) as response:
            if fields.get("stream"):
                async for _ in response.content:
                    load.first.append(time.perf_counter() - started)
                    break
            body = await response.read()  # Serve's own proxy refuses in plain text
        elapsed = time.perf_counter() - started
        load.statuses[response.status] += 1
        if response.status != 200:
            load.refused.append(elapsed)
            return
        load.latencies.append(elapsed)
        if not fields.get("stream"):
            answer = json.loads(body)
            load.tokens += answer["usage"]["completion_tokens"]
            load.labels[answer["system_fingerprint"]] += 1

    async def session(self, client: aiohttp.ClientSession, load: Load, seed: int) -> None:
        """One episode of the agent; its turns count as answers."""
        async with client.post("/agent/sessions", json={"seed": seed}) as response:
            session = await response.json()
        done = False
        while not done:
            started = time.perf_counter()
            async with client.post(f"/agent/sessions/{session['id']}/step", json={}) as response:
                turn = await response.json()
            load.statuses[response.status] += 1
            load.latencies.append(time.perf_counter() - started)
            load.tokens += turn["info"].get("response_tokens", 0)
            done = turn["done"]
        await client.delete(f"/agent/sessions/{session['id']}")

    async def closed_loop(
        self, clients: int, seconds: float, one: Callable[[aiohttp.ClientSession, Load, int], Awaitable[None]]
    ) -> Load:
        """Let ``clients`` work for ``seconds``."""
        load, stop = Load(), time.perf_counter() + seconds

        async def worker(client: aiohttp.ClientSession, number: int) -> None:
            count = 0
            while time.perf_counter() < stop:
                await one(client, load, number + clients * count)
                count += 1

        started = time.perf_counter()
        async with self.client() as client:
            await asyncio.gather(*[worker(client, number) for number in range(clients)])
        load.seconds = time.perf_counter() - started
        return load

    async def measure(self, seconds: float) -> dict[str, Any]:
        """All measurements."""

        async def chat(client: aiohttp.ClientSession, load: Load, number: int) -> None:
            await self.ask(client, load)

        async def stream(client: aiohttp.ClientSession, load: Load, number: int) -> None:
            await self.ask(client, load, stream=True)

        await self.closed_loop(8, WARM_UP_S, chat)
        results: dict[str, Any] = {}
        for clients in (1, 8, 32):
            cpu = self.cpu_seconds()
            load = await self.closed_loop(clients, seconds, chat)
            cpu_ms = (self.cpu_seconds() - cpu) * 1e3 / len(load.latencies)
            results[f"chat, {clients} clients"] = {**load.figures(), "server CPU ms/answer": round(cpu_ms, 2)}
        results["streamed chat, 8 clients"] = (await self.closed_loop(8, seconds, stream)).figures()
        results["turns in 8 sessions"] = (await self.closed_loop(8, seconds, self.session)).figures()
        results[f"{OVERLOAD} clients"] = (await self.closed_loop(OVERLOAD, seconds, chat)).figures()
        results["chat, 8 clients, after that"] = (await self.closed_loop(8, seconds, chat)).figures()
        results[f"{ROLLS} checkpoints, 8 clients"] = await self.roll(chat)
        return results

    async def roll(self, chat: Callable[[aiohttp.ClientSession, Load, int], Awaitable[None]]) -> dict[str, Any]:
        """Alternate between two checkpoints while 8 clients ask."""
        exchanges: list[float] = []
        everything = Load()

        async def exchange(client: aiohttp.ClientSession) -> None:
            for number in range(ROLLS):
                path = str(self.models[(number + 1) % 2])
                started = time.perf_counter()
                async with client.post("/admin/checkpoint", json={"checkpoint": path}) as response:
                    assert response.status == 200, await response.text()
                exchanges.append(time.perf_counter() - started)
                await asyncio.sleep(0.25)

        async with self.client() as client:
            work = asyncio.create_task(exchange(client))
            while not work.done():
                load = await self.closed_loop(8, 0.5, chat)
                everything.seconds += load.seconds
                everything.latencies += load.latencies
                everything.statuses += load.statuses
                everything.labels += load.labels
                everything.tokens += load.tokens
            await work
        return {
            **everything.figures(),
            "exchange p50 ms": round(_ms(exchanges, 50), 2),
            "exchange max ms": round(_ms(exchanges, 100), 2),
            "answers by checkpoint": dict(everything.labels),
        }

    def cpu_seconds(self) -> float:
        """CPU of the server: command, Ray, proxy, gateway, engines."""
        total = 0.0
        process = psutil.Process(self.process.pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = member.cpu_times()
                total += times.user + times.system
        return total


def _ms(values: list[float], percent: float) -> float:
    return float(np.percentile(values, percent)) * 1e3 if values else 0.0


@contextlib.contextmanager
def started(engine: str, replicas: int, folder: Path) -> Iterator[Bench]:
    """Start a server with two copies of the starter to choose from."""
    starter = ensure_model(Settings(), AgentAlgorithm.from_settings)
    models = [Path(shutil.copytree(starter, folder / name)) for name in ("first", "second")]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = [f"model_name={NAME}", f"max_queued_requests={QUEUED}", f"min_replicas={replicas}"]
    command = [sys.executable, "run.py", "serve", "--checkpoint", str(models[0]), "--port", str(port)]
    command += ["--engine", engine, "--set", *keys, f"max_replicas={replicas}", "kv_cache_gb=0.25"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        deadline = time.monotonic() + START_S
        while b"stop " not in process.stdout.readline():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start within {START_S} s")
        yield Bench(f"http://127.0.0.1:{port}", process, models)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=120)


def main() -> None:
    """Print the figures and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", default="vllm", choices=("vllm", "torch"), help="what samples (default: vllm)")
    parser.add_argument("--replicas", type=int, default=1, help="engines (default: 1)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (default: 8)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with started(args.engine, args.replicas, Path(folder)) as bench:
            start_s, start_cpu = time.perf_counter() - begun, bench.cpu_seconds()
            results = asyncio.run(bench.measure(args.seconds))
    results["start"] = {"seconds": round(start_s, 1), "CPU seconds": round(start_cpu, 1)}
    for name, figures in results.items():
        print(f"{name}: {figures}")
    suffix = "" if args.replicas == 1 else f"_{args.replicas}_replicas"
    flags = f"--engine {args.engine} --replicas {args.replicas} --seconds {args.seconds:g}"
    write_figures(f"serving_{args.engine}{suffix}", f"python -m benchmarks.serving {flags}", results)


if __name__ == "__main__":
    main()
