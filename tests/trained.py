"""Small runs in this process, and what tests compare of them: metrics without times, and weights."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

TIMES = ("timing_s/", "perf/")


@contextmanager
def running(model: Path, env: str = "guess_numbers", **keys: Any) -> Iterator[AgentAlgorithm]:
    """Build a local run and stop it at the end, also of a test that fails."""
    algo = AgentConfig().environment(env).training(**{"model": str(model), **keys}).local().build_algo()
    try:
        yield algo
    finally:
        algo.stop()


def train(algo: AgentAlgorithm, iterations: int = 1, leave_out: tuple[str, ...] = TIMES) -> list[dict[str, float]]:
    """Train; return each iteration's metrics without those that begin with words of ``leave_out``."""
    results = [algo.train()["agent"] for _ in range(iterations)]
    return [{name: value for name, value in found.items() if not name.startswith(leave_out)} for found in results]


def policy_weights(algo: AgentAlgorithm) -> dict[str, torch.Tensor]:
    """A copy: a local group's state shares memory with its weights."""
    state = algo.learner_group.full_state()["rl_module"]["default_policy"]
    return {name: tensor.clone() for name, tensor in state.items()}


def equal(first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, second[name]) for name, tensor in first.items())
