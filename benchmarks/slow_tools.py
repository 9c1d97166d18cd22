"""GuessNumbers whose steps take as long as a call of a search API, an MCP server or a judge.

The time is log-normal and depends only on the task, the turn and the episode's seed.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
from collections.abc import Mapping
from pathlib import Path
from statistics import NormalDist
from typing import Any

import ray

#: Median and 99th percentile of a step, in seconds.
MEDIAN_S, SLOWEST_S = 0.2, 5.0
SIGMA = math.log(SLOWEST_S / MEDIAN_S) / NormalDist().inv_cdf(0.99)


def latency_s(task: str, seed: int | None, turn: int) -> float:
    """Sample exp(N(ln median, sigma^2)) by inverse transform of a hash."""
    digest = hashlib.sha256(f"{task}/{seed}/{turn}".encode()).digest()
    share = (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
    return MEDIAN_S * math.exp(SIGMA * NormalDist().inv_cdf(share))


def install() -> None:
    from rl_agents.envs.guess_numbers.env import GuessNumbersEnv

    quick_reset, quick_step = GuessNumbersEnv.reset, GuessNumbersEnv.step

    def reset(self: Any, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.tool_seed = seed
        return quick_reset(self, seed=seed, options=options)

    async def step(self: Any, action: str) -> Any:
        await asyncio.sleep(latency_s(self.state.task.task_id, self.tool_seed, self.state.turns))
        return quick_step(self, action)

    GuessNumbersEnv.reset, GuessNumbersEnv.step = reset, step  # type: ignore[method-assign, assignment]


def start_session(
    actors: int, hook: str = "benchmarks.slow_tools.install", switches: Mapping[str, str] | None = None
) -> None:
    """Start Ray and call ``hook`` (here: slow tools) in all of its workers, with environment variables."""
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]  # workers must find the hook's module
    variables = {**(switches or {}), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    ray.init(
        num_cpus=actors + 1, include_dashboard=False, logging_level="ERROR", log_to_driver=False,
        runtime_env={"worker_process_setup_hook": hook, "env_vars": variables},
    )  # fmt: skip
