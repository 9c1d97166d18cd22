"""A stream with real env runners, engines and a pool: the bound, a killed runner, a checkpoint and what follows it."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from rl_agents.store.reader import PoolReader
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

KEYS: dict[str, Any] = {
    "env": "gymnasium:tests.orchestrator.process_envs:Fickle", "env.train_tasks": 7, "env.test_tasks": 4, "engine":
    "torch", "tasks_per_iteration": 4, "group_size": 4, "iterations": 6, "max_turns": 3, "max_response_tokens": 6,
    "max_model_len": 128, "engine_timeout_s": 30.0, "lr": 1e-3, "stream": True, "staleness": 2, "num_env_runners": 2,
}  # fmt: skip


def build(model_dir: Path) -> AgentAlgorithm:
    return AgentConfig().training(model=str(model_dir), **KEYS).build_algo()


def learn(algo: AgentAlgorithm, iterations: int, ages: list[int]) -> None:
    for _ in range(iterations):
        version = algo.policy_version
        metrics = algo.train()["agent"]
        played = algo.last_trajectories
        assert {count for count in Counter(t.group_id for t in played).values()} == {4} and len(played) == 16
        ages.append(version - min(step.policy_version for t in played for step in t.steps))
        assert metrics["rollout/staleness_max"] <= 2 and metrics["timing_s/wait_rollout"] >= 0
        assert metrics["stream/admitted"] <= 12 + 4 * algo.iteration


def test_a_run_that_is_struck_and_resumed(ray_session: None, beginner_model_dir: Path, tmp_path: Path) -> None:
    ages: list[int] = []
    algo = build(beginner_model_dir)
    try:
        algo.open_pool(tmp_path / "pool.sqlite")
        learn(algo, 2, ages)
        assert len(algo.evaluate_policy(episodes=3)) == 3
        pids = algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)
        struck = threading.Timer(0.01, os.kill, (pids[0], signal.SIGKILL))
        struck.start()
        learn(algo, 2, ages)
        struck.join()
        algo.save_run_checkpoint(tmp_path / "000004")
        place, version = algo.place.position, algo.policy_version
        waiting = algo.buffer.in_flight()[::3]
    finally:
        algo.stop()
    assert place == 16 and waiting
    algo = build(beginner_model_dir)
    try:
        algo.restore_run_checkpoint(tmp_path / "000004")
        algo.open_pool(tmp_path / "pool.sqlite")
        assert algo.buffer.in_flight()[::3] == waiting and algo.policy_version == version
        served = algo.buffer.served
        assert served and max(served) <= version, "what was in flight is in the pool"
        learn(algo, 2, ages)
        groups = {t.group_id for t in algo.last_trajectories}
        algo.save_run_checkpoint(tmp_path / "000006")
    finally:
        algo.stop()
    assert len(groups) == 4 and max(ages) <= 2
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        sessions = Counter((s.group_id, s.member) for s in pool.sessions())
        assert len(list(pool.trajectories())) == sessions.total(), "no call is missing"
    assert set(sessions) == {(group, member) for group in range(24) for member in range(4)}
    assert set(sessions.values()) == {1}, "every group was learned from once"
