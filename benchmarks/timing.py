"""Shared parts of measurements: an engine without cost, separate processes, and clocks."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from rl_agents.inference.base import Completion, Sampling


class StubEngine:
    """Answers every request at once with ``text``, so that only the code around the engine is measured."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._ids = tokenizer.encode(text, add_special_tokens=False)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        ids = [*self._ids, sampling.stop_token_ids[0]]
        return Completion(ids, [-0.5] * len(ids), 0, "stop")

    async def sync(self, weights: Any, version: int) -> None:
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
