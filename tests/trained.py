"""What tests compare of runs: metrics without times, and weights."""

from collections.abc import Mapping

import torch

from rl_agents.trainer.algorithm import AgentAlgorithm

TIMES = ("timing_s/", "perf/")


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
