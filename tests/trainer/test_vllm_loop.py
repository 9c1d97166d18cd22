"""The whole loop on a real vLLM engine in its actor."""

from pathlib import Path
from typing import Any

import pytest

from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

pytest.importorskip("vllm", reason="vLLM is not installed")


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    sizes = {"tasks_per_iteration": 4, "group_size": 4, "lr": 1e-3}
    return AgentConfig().training(model=str(model_dir), engine="vllm", **sizes, **keys).build_algo()


def resumed_together(model_dir: Path, checkpoint: Path) -> list[dict[str, float]]:
    """Go on from a checkpoint with the engine in the env runner's process."""
    algo = build(model_dir, placement="colocate")
    try:
        algo.restore_run_checkpoint(checkpoint)
        metrics = [algo.train()["agent"] for _ in range(2)]
        assert {s.policy_version for t in algo.last_trajectories for s in t.steps} == {algo.policy_version - 1}
        return metrics
    finally:
        algo.stop()


def test_engine_and_learner_agree_after_every_sync_and_a_resumed_run_meets_the_same_tasks(
    ray_session: None, beginner_model_dir: Path, tmp_path: Path
) -> None:
    algo = build(beginner_model_dir)
    try:
        algo.train()
        algo.save_run_checkpoint(tmp_path / "000001")
        first = [algo.train()["agent"] for _ in range(3)]
        played = [(t.task_id, t.seed) for t in algo.last_trajectories]
        algo.restore_run_checkpoint(tmp_path / "000001")
        second = [algo.train()["agent"] for _ in range(3)]
        together = resumed_together(beginner_model_dir, tmp_path / "000001")
    finally:
        algo.stop()
    assert algo.iteration == 4
    assert played == [(t.task_id, t.seed) for t in algo.last_trajectories]
    for mine, theirs in zip(together, first[:2], strict=True):  # the same first tokens, then float noise
        assert mine["rollout_corr/logprob_diff_max"] < 1e-4
        assert mine["rollout/episodes"] == theirs["rollout/episodes"]
    assert together[0]["rollout/return_mean"] == first[0]["rollout/return_mean"]
    assert together[0]["rollout/response_tokens"] == first[0]["rollout/response_tokens"]
    for metrics in first + second:
        assert metrics["rollout_corr/logprob_diff_max"] < 1e-4
    # Seeded sampling on equal weights: curves differ by float noise only.
    assert first[0]["rollout/success_rate"] == pytest.approx(second[0]["rollout/success_rate"], abs=0.3)
