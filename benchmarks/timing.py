"""Shared parts of measurements: an engine without cost, separate processes, clocks, and memory."""

from __future__ import annotations

import multiprocessing
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from rl_agents.inference.base import Completion, Sampling


class StubEngine:
    """Answers every request at once with ``text``, so that only the code around the engine is measured."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._ids = tokenizer.encode(text, add_special_tokens=False)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        ids = [*self._ids, sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 0, "stop")

    async def load_weights(self, weights: Any, version: int) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""


def in_new_process(job: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a module in a process that has imported and cached nothing."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(job, *args).result()


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall and CPU seconds of a call, over all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def cpu_of(actor: Any) -> float:
    """Return the CPU seconds of an actor's process so far, over all threads; called in the actor."""
    return time.process_time()


def private(pid: int) -> int:
    found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))
    return int(found[1]) * 1024 if found else 0


@contextmanager
def growth(pid: int) -> Iterator[list[int]]:
    """Yield a list that has the largest growth of a process's own memory in the block, in bytes, at its end."""
    start, over, grown = private(pid), threading.Event(), [0]

    def watch() -> None:
        while not over.wait(0.5):
            grown[0] = max(grown[0], private(pid) - start)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield grown
    finally:
        over.set()
        thread.join()


class Clocks:
    """CPU seconds of processes, by name, since the last reading."""

    def __init__(self, **pids: int) -> None:
        self.pids, self.last = pids, dict.fromkeys(pids, 0.0)
        self.read()

    def read(self) -> dict[str, float]:
        times = {name: psutil.Process(pid).cpu_times() for name, pid in self.pids.items()}
        now = {name: own.user + own.system for name, own in times.items()}
        spent, self.last = {name: now[name] - self.last[name] for name in now}, now
        return spent
