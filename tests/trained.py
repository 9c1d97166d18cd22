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


KEYS: dict[str, Any] = {"tasks_per_iteration": 4, "group_size": 4, "eval_episodes": 8}


def build(model_dir: Path, env: str = "guess_numbers", **keys: Any) -> AgentAlgorithm:
    config = AgentConfig().environment(env).training(model=str(model_dir), **{**KEYS, **keys}).local()
    return config.build_algo()


def count_generations(algo: AgentAlgorithm) -> list[int]:
    """The seeds that the engine is asked to sample with from now on."""
    assert algo.rollout_workers is not None and algo.rollout_workers.engine is not None
    engine, seeds = algo.rollout_workers.engine, []
    generate = engine.generate

    async def counted(prompt_ids: Any, sampling: Any, *rest: Any) -> Any:
        seeds.append(sampling.seed)
        return await generate(prompt_ids, sampling, *rest)

    engine.generate = counted  # type: ignore[method-assign]
    return seeds
