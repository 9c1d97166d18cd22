"""Real Ray, real processes killed: the run goes on and no episode is lost or counted twice."""

import copy
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray
from orchestrator.killing import engine_pid, kill_during, kill_learner, open_loop, runner_pids

from rl_agents.errors import LearnerLost
from rl_agents.resources import room_for_all
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.trainer import train_loop
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

KEYS: dict[str, Any] = {"engine": "torch", "tasks_per_iteration": 4, "group_size": 4, "engine_timeout_s": 20.0}


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    return AgentConfig().training(model=str(model_dir), **{**KEYS, **keys}).build_algo()


@pytest.fixture(scope="module")
def algo(ray_session: None, beginner_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    algo = build(beginner_model_dir, num_env_runners=1)
    algo.open_pool(tmp_path_factory.mktemp("run") / "pool.sqlite")
    algo.train()
    yield algo
    algo.stop()


def check_iteration(algo: AgentAlgorithm) -> dict[str, float]:
    metrics = algo.train()["agent"]
    asked = {(group, member) for group in range(4) for member in range(4)}
    assert [(t.group_id, t.member) for t in algo.last_trajectories] == sorted(asked)
    assert metrics["rollout/episodes"] == 16
    assert {step.policy_version for t in algo.last_trajectories for step in t.steps} == {algo.policy_version - 1}
    return metrics


def test_actors_start_side_by_side_where_all_find_room_beside_who_is_there(algo: AgentAlgorithm) -> None:
    settings = copy.copy(algo.settings)  # its engine and env runner have one and a half of the four CPUs
    settings.num_env_runners = 3
    assert room_for_all(settings)
    settings.num_env_runners = 4
    assert not room_for_all(settings)


def test_a_killed_env_runner_is_replaced_and_its_episodes_are_played_again(algo: AgentAlgorithm) -> None:
    os.kill(runner_pids(algo)[0], signal.SIGKILL)
    metrics = check_iteration(algo)
    assert metrics["rollout/resampled_episodes"] > 0
    check_iteration(algo)


def test_a_killed_engine_comes_back_with_the_last_weights(algo: AgentAlgorithm) -> None:
    thread = kill_during(0.01, engine_pid(algo))
    metrics = check_iteration(algo)
    thread.join()
    again = check_iteration(algo)
    assert metrics["rollout_corr/logprob_diff_max"] < 1e-4
    assert again["rollout_corr/logprob_diff_max"] < 1e-4


def test_after_all_these_kills_the_pool_holds_every_episode_once(algo: AgentAlgorithm, tmp_path: Path) -> None:
    assert algo.pool is not None
    writer = ray.get(algo.pool.actor.pid.remote())
    thread = kill_during(0.05, writer)
    check_iteration(algo)
    thread.join()
    algo.save_run_checkpoint(tmp_path / "last")  # waits until all is on disk
    assert ray.get(algo.pool.actor.pid.remote()) != writer, "the writer was killed, and is back"
    with PoolReader(algo.pool.path) as pool:
        last = algo.iteration - 1
        assert list(pool.trajectories(StoreQuery(iteration=last))) == algo.last_trajectories
        sessions = Counter((s.iteration, s.group_id, s.member) for s in pool.sessions())
        places = {(i, group, member) for i in range(algo.iteration) for group in range(4) for member in range(4)}
        assert set(sessions) == places and set(sessions.values()) == {1}
        assert len(list(pool.trajectories())) == len(places), "no call is missing"
        assert {batch.session for batch in pool.batches()} == {s.id for s in pool.sessions()}


def test_killed_learners_are_replaced_and_the_curve_is_the_same_until_there_were_too_many(
    ray_session: None, beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first loss is before there is a checkpoint; after one: tests/orchestrator/test_async_rollouts_actors.py."""
    keys = {"num_env_runners": 0, "iterations": 3, "eval_episodes": 0, "checkpoint_interval": 2}
    sharded = {"num_learners": 2, "learner_sharding": "fsdp"}
    quiet, struck = build(beginner_model_dir, **keys), build(beginner_model_dir, **keys, **sharded)
    try:
        expected, _ = open_loop(quiet, tmp_path / "quiet")
        loop, shown = open_loop(struck, tmp_path / "struck")
        records = [expected.advance(), expected.advance()]
        loop.advance()
        kill_learner(struck, 1)
        for theirs, mine in zip(records, [loop.advance(), loop.advance()], strict=True):
            for tag in ("iteration", "rollout/return_mean", "rollout/response_tokens", "actor/pg_loss"):
                assert mine[tag] == pytest.approx(theirs[tag], rel=1e-4), tag
        assert "learner 1 of 2 died" in shown.getvalue() and "continue after iteration 0" in shown.getvalue()
        monkeypatch.setattr(train_loop, "MAX_RESTARTS", 0)
        kill_learner(struck, 0)
        with pytest.raises(LearnerLost, match="learner 0 of 2 died while"):
            loop.advance()
        ((iteration, checkpoint),) = loop.folder.complete_checkpoints()
        quiet.restore_run_checkpoint(checkpoint)
        assert iteration == quiet.iteration == 2, "one learner goes on where several were"
    finally:
        quiet.stop()
        struck.stop()
