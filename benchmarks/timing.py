"""What measurements share: an engine that costs nothing, processes of their own, and clocks."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from rl_agents.inference.base import Completion, Sampling


class StubEngine:
    """Answers ``text_of`` a request after ``wait_s``, so that all that is measured is what is around it."""

    def __init__(self, tokenizer: Any, text_of: Callable[[Sampling], str], wait_s: float = 0.0) -> None:
        self._tokenizer, self._text_of, self._wait_s = tokenizer, text_of, wait_s
        self._known: dict[str, list[int]] = {}

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        await asyncio.sleep(self._wait_s)
        text = self._text_of(sampling)
        if text not in self._known:
            self._known[text] = self._tokenizer.encode(text, add_special_tokens=False)
        ids = [*self._known[text], sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 0, "stop")

    async def sync(self, weights: Any, version: int) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""


def in_new_process(job: Callable[..., Any], *args: Any) -> Any:
    """Call a function of a module in a process that has imported and cached nothing."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(job, *args).result()


@contextmanager
def server(*command: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A Python process that prints one line when it is ready, and that line; it is killed at the end."""
    process = subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def peak_mib() -> float:
    """Most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def spent(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds, all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def cpu_of(actor: Any) -> float:
    """CPU seconds of an actor's process so far, all threads; called in the actor."""
    return time.process_time()
