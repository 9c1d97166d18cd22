"""What environments that wait cost an env runner: ``python -m benchmarks.slow_environments``.

Three jobs, each in a process of its own, with an engine that answers at once, so that all time is the environment's and
the loop's:

- 64 episodes of five turns; reset and step take 0.2 s. ``no waiting``: calls of 0 s, which is what the loop
  itself takes.
- 1,000 episodes whose only step takes 1 s, as coroutines and in threads; inline, twenty of them.
- 128 episodes of an environment that holds 8 MiB, as a small virtual machine would: memory with all at once, and with
  ``env_concurrency=8``.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import gymnasium
import psutil
from gymnasium.spaces import Text

from benchmarks.report import median_table, write_result
from rl_agents.chat.template import make_context
from rl_agents.config import Settings
from rl_agents.data.trajectory import EpisodeSpec
from rl_agents.envs.base import starter_spec
from rl_agents.inference.base import Completion, Sampling, Weights
from rl_agents.rollout.agent_loop import Rollouts, collect_episodes
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.turns import Limits

TURNS, HELD_BYTES = 5, 8 << 20


class Slow(gymnasium.Env[str, str]):
    """Every call takes ``wait_s``; ``only_steps``: resets take no time."""

    observation_space = action_space = Text(max_length=1000)

    def __init__(self, wait_s: float = 0.2, only_steps: bool = False, turns: int = TURNS) -> None:
        self.wait_s, self.reset_s, self.turns = wait_s, 0.0 if only_steps else wait_s, turns

    @staticmethod
    def task_ids(split: str, **_: Any) -> list[str]:
        """One task."""
        return ["task"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin."""
        time.sleep(self.reset_s)
        self.turn = 0
        return "begin", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take a turn."""
        time.sleep(self.wait_s)
        return self.went_on()

    def went_on(self) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Return what a step returns."""
        self.turn += 1
        return "go on", 1.0, self.turn >= self.turns, False, {"success": True}


class SlowCoroutine(Slow):
    """The same as coroutines."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        """Begin."""
        await asyncio.sleep(self.reset_s)
        self.turn = 0
        return "begin", {}

    async def step(self, action: str) -> Any:  # type: ignore[override]
        """Take a turn."""
        await asyncio.sleep(self.wait_s)
        return self.went_on()


class Heavy(Slow):
    """Holds memory."""

    def __init__(self) -> None:
        super().__init__(wait_s=0.01)
        self.held = bytearray(b"\1") * HELD_BYTES


class AtOnce:
    """An engine that always says the same."""

    def __init__(self, tokenizer: Any) -> None:
        self._ids = tokenizer.encode("go on", add_special_tokens=False)

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Answer, after all the others have asked."""
        await asyncio.sleep(0)
        ids = [*self._ids, sampling.stop_token_ids[0]]
        return Completion(ids, [0.0] * len(ids), 0, "stop")

    async def sync(self, weights: Weights, version: int) -> None:
        """Nothing to load."""

    def close(self) -> None:
        """Nothing to free."""


def seconds(env: str, episodes: int, **keys: Any) -> float:
    """Play a batch of episodes; return the seconds that it takes."""
    name = f"gymnasium:benchmarks.slow_environments:{env}"
    pool = env_pool(Settings.from_dict({"env": name, **keys}))
    tokenizer = starter_spec("guess_numbers").build_tokenizer()

    async def play() -> float:
        started = time.monotonic()
        await _played(pool, episodes, tokenizer)
        took = time.monotonic() - started
        await pool.close()
        return took

    return asyncio.run(play())


async def _played(pool: EnvPool, episodes: int, tokenizer: Any) -> Rollouts:
    specs = [EpisodeSpec("task", number, 0, seed=number) for number in range(episodes)]
    limits = Limits(TURNS, 8, 4000)
    rollouts = await collect_episodes(specs, pool, AtOnce(tokenizer), make_context("append", tokenizer), limits)
    if any(t.end_cause != "terminated" for t in rollouts.trajectories):
        raise RuntimeError(rollouts.trajectories[0].end_cause)
    return rollouts


def peak_mib(**keys: Any) -> float:
    """Play 128 episodes of `Heavy`; return the most memory of the process and of those below it."""
    seconds("Slow", 1, **{"env.kwargs": {"wait_s": 0.0}})  # what is imported is not the environments'
    own, most, over = psutil.Process(), 0.0, threading.Event()
    before = own.memory_info().rss

    def look() -> None:
        nonlocal most
        while not over.wait(0.02):
            held = 0
            for process in (own, *own.children(recursive=True)):
                try:
                    held += process.memory_info().rss
                except psutil.Error:
                    continue
            most = max(most, held)

    watcher = threading.Thread(target=look)
    watcher.start()
    seconds("Heavy", 128, **keys)
    over.set()
    watcher.join()
    return (most - before) / 2**20


def waiting() -> dict[str, float]:
    """64 episodes of five turns, 0.2 s a call."""
    none = {"env.kwargs": {"wait_s": 0.0}}
    return {
        "64 x 5 x 0.2 s, no waiting, inline": seconds("Slow", 64, env_blocking="inline", **none),
        "64 x 5 x 0.2 s, inline (before)": seconds("Slow", 64, env_blocking="inline"),
        "64 x 5 x 0.2 s, thread": seconds("Slow", 64, env_blocking="thread"),
        "64 x 5 x 0.2 s, coroutines": seconds("SlowCoroutine", 64),
        "64 x 5 x 0.2 s, 8 processes, first batch": seconds("Slow", 64, env_blocking="process", env_concurrency=8),
    }


def calls() -> dict[str, float]:
    """1,000 tool calls of 1 s at once."""
    one = {"env.kwargs": {"wait_s": 1.0, "only_steps": True, "turns": 1}}
    return {
        "20 calls of 1 s, inline (before)": seconds("Slow", 20, env_blocking="inline", **one),
        "1,000 calls of 1 s, thread": seconds("Slow", 1000, env_blocking="thread", env_concurrency=1000, **one),
        "1,000 calls of 1 s, coroutines": seconds("SlowCoroutine", 1000, env_blocking="inline", **one),
    }


def memory_of_all() -> dict[str, float]:
    """128 environments of 8 MiB."""
    return {"128 x 8 MiB, all at once (before): MiB": peak_mib(env_blocking="inline")}


def memory_of_eight() -> dict[str, float]:
    """Eight at a time, in threads."""
    return {"128 x 8 MiB, env_concurrency=8: MiB": peak_mib(env_blocking="thread", env_concurrency=8)}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rounds = [_one_round() for _ in range(args.rounds)]
    print(median_table(rounds))
    load = os.getloadavg()[0]
    write_result("slow_environments", "python -m benchmarks.slow_environments", rounds, load_at_the_end=load)


def _one_round() -> Mapping[str, float]:
    figures: dict[str, float] = {}
    for job in (waiting, calls, memory_of_all, memory_of_eight):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            figures |= process.submit(job).result()
    return figures


if __name__ == "__main__":
    main()
