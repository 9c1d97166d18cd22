"""A stream with real env runners, an engine, a learner and a pool: the bound, and what is killed."""

import os
import signal
import threading
from collections import Counter
from typing import Any

from orchestrator.killing import engine_pid, kill_learner, open_loop, runner_pids

from rl_agents.store.reader import PoolReader
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.train_loop import TrainLoop

KEYS: dict[str, Any] = {
    "env": "gymnasium:tests.orchestrator.process_envs:Fickle", "env.train_tasks": 7, "env.test_tasks": 4, "engine":
    "torch", "tasks_per_iteration": 4, "group_size": 4, "iterations": 6, "max_turns": 3, "max_response_tokens": 6,
    "max_model_len": 128, "engine_timeout_s": 30.0, "lr": 1e-3, "stream": True, "max_staleness": 2,
    "num_env_runners": 2, "num_learners": 1, "eval_episodes": 0, "checkpoint_interval": 2,
}  # fmt: skip


def learn(algo: AgentAlgorithm, loop: TrainLoop, iterations: int, ages: list[int]) -> None:
    for _ in range(iterations):
        record, played = loop.advance(), algo.last_trajectories
        assert {count for count in Counter(t.group_id for t in played).values()} == {4} and len(played) == 16
        ages.append(algo.policy_version - 1 - min(step.policy_version for t in played for step in t.steps))
        assert record["rollout/staleness_max"] <= 2 and record["timing_s/wait_rollout"] >= 0
        assert record["stream/admitted"] <= 12 + 4 * algo.iteration


def test_a_run_that_is_struck_goes_on_and_can_be_resumed(ray_session, beginner_model_dir, tmp_path) -> None:
    ages: list[int] = []
    algo = AgentConfig().training(model=str(beginner_model_dir), **KEYS).build_algo()
    try:
        loop, shown = open_loop(algo, tmp_path / "run")
        learn(algo, loop, 2, ages)
        assert len(algo.evaluate_policy(episodes=3)) == 3
        struck = threading.Timer(0.01, os.kill, (runner_pids(algo)[0], signal.SIGKILL))
        struck.start()
        learn(algo, loop, 2, ages)
        struck.join()
        waiting = algo.buffer.in_flight()[::4]
        # The engine's weights were the learner's, and are gone with it: all go on from the last checkpoint.
        engine = engine_pid(algo)
        kill_learner(algo, 0)
        os.kill(engine, signal.SIGKILL)
        learn(algo, loop, 2, ages)
        assert algo.buffer.served and max(algo.buffer.served) <= 4, "what was in flight is in the pool"
        groups = {t.group_id for t in algo.last_trajectories}
        loop.close("done")
    finally:
        algo.stop()
    assert "new learners continue after iteration 4" in shown.getvalue()
    assert loop.folder.read_summary()["learner_restarts"] == 1
    assert [record["iteration"] for record in loop.folder.read_metrics()] == [1, 2, 3, 4, 5, 6]
    assert len(groups) == 4 and max(ages) <= 2 and algo.policy_version == 6
    with PoolReader(loop.folder.pool) as pool:
        sessions = Counter((s.group_id, s.member) for s in pool.sessions())
        assert len(list(pool.trajectories())) == sessions.total(), "no call is missing"
    assert set(sessions) == {(group, member) for group in range(24) for member in range(4)}
    assert set(sessions.values()) == {1}, "every group was learned from once"
    fewer = {"num_env_runners": 1, "num_learners": 0}
    resumed = AgentConfig().training(model=str(beginner_model_dir), **{**KEYS, **fewer}).build_algo()
    try:
        resumed.restore_run_checkpoint(dict(loop.folder.complete_checkpoints())[4])
        assert waiting and resumed.buffer.in_flight()[::4] == waiting
        assert (resumed.policy_version, resumed.place.position) == (4, 16)
    finally:
        resumed.stop()
