"""`async_level=k` with actors: a thread plays while the learner learns, and the weights are those of one process."""

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from orchestrator.killing import kill_learner, open_loop
from trained import policy_weights

from rl_agents.store.reader import PoolReader
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

#: The engine's log-probabilities differ in their last bits with what is sampled beside them: nothing reads them here.
KEYS: dict[str, Any] = {
    "env": "gymnasium:tests.orchestrator.process_envs:Fickle", "env.train_tasks": 7, "env.test_tasks": 4, "engine":
    "torch", "tasks_per_iteration": 4, "group_size": 4, "iterations": 5, "max_turns": 3, "max_response_tokens": 6,
    "max_model_len": 128, "engine_timeout_s": 30.0, "old_logprobs": "learner", "rollout_correction": "none", "lr": 1e-3,
}  # fmt: skip


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    config = AgentConfig().training(**{**KEYS, "model": str(model_dir), **keys})
    return (config if keys.get("num_env_runners") else config.local()).build_algo()


def run(algo: AgentAlgorithm, hurry: bool) -> tuple[dict[str, torch.Tensor], list[tuple[int, float]]]:
    """Learn to the end, with pauses and evaluations at random; return weights, and lag and version of every batch."""
    seen, rng = [], random.SystemRandom()
    try:
        while algo.iteration < algo.settings.iterations:
            metrics = algo.train()["agent"]
            versions = {step.policy_version for t in algo.last_trajectories for step in t.steps}
            seen.append((*versions, metrics["rollout/async_level"], metrics["rollout/return_mean"]))
            if not hurry:
                time.sleep(rng.choice([0.0, 0.3]))
                if rng.random() < 0.4:
                    algo.evaluate_policy(episodes=2)
        return policy_weights(algo), seen
    finally:
        algo.stop()


def test_runners_and_timing_change_nothing(ray_session: None, beginner_model_dir: Path) -> None:
    keys = {"algo": "vspo", "async_level": 2}
    reference, expected = run(build(beginner_model_dir, **keys), hurry=True)
    assert [(version, behind) for version, behind, _ in expected] == [(max(0, i - 2), min(2, i)) for i in range(5)], (
        "all iterations learned something, by these versions"
    )
    weights, seen = run(build(beginner_model_dir, **keys, num_env_runners=2), hurry=False)
    assert seen == expected
    assert all(torch.equal(tensor, weights[name]) for name, tensor in reference.items())


def test_lost_learners_go_back_and_what_was_in_flight_is_not_sampled_again(ray_session, beginner_model_dir, tmp_path):
    """Their weights lie in the object store, which loses those of the dead ones."""
    keys = {"async_level": 1, "eval_episodes": 4, "eval_interval": 2, "checkpoint_interval": 2}
    quiet = build(beginner_model_dir, **keys)
    struck = build(beginner_model_dir, **keys, num_env_runners=1, num_learners=1)
    try:
        expected, _ = open_loop(quiet, tmp_path / "quiet")
        loop, shown = open_loop(struck, tmp_path / "struck")
        assert expected.run()
        while loop.advance()["iteration"] < 3:
            pass
        kill_learner(struck, 0)
        assert loop.run()
        text, folder, other = shown.getvalue(), loop.folder, expected.folder
        assert "learner 0 of 1 died" in text and "continue after iteration 2" in text
        for mine, theirs in zip(folder.read_metrics(), other.read_metrics(), strict=True):
            for tag in ("iteration", "rollout/return_mean", "rollout/async_level", "actor/pg_loss", "eval/return_mean"):
                assert mine.get(tag, 0.0) == pytest.approx(theirs.get(tag, 0.0), rel=1e-4), tag
        assert folder.read_summary()["learner_restarts"] == 1
        assert folder.read_summary()["episodes"] == other.read_summary()["episodes"] == 5 * 16
        with PoolReader(folder.pool) as pool:
            seeds = Counter(call.sampling_seed for call in pool.calls())
        assert len(seeds) == 5 * 16 * 3 and set(seeds.values()) == {1}, "every call of the run, once"
    finally:
        quiet.stop()
        struck.stop()
