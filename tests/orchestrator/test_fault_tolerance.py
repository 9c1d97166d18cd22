"""Real Ray, real processes killed: the run goes on and no episode is lost or counted twice."""

from __future__ import annotations

import copy
import io
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import ray

from rl_agents.errors import LearnerLost
from rl_agents.interrupts import Interrupts
from rl_agents.reporting.progress import Progress
from rl_agents.reporting.run_folder import RunFolder
from rl_agents.resources import room_for_all
from rl_agents.store.reader import PoolReader, Where
from rl_agents.trainer import train_loop
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig
from rl_agents.trainer.train_loop import TrainLoop

KEYS: dict[str, Any] = {"engine": "torch", "tasks_per_iteration": 4, "group_size": 4, "engine_timeout_s": 20.0}


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    return AgentConfig().training(model=str(model_dir), **{**KEYS, **keys}).build_algo()


@pytest.fixture(scope="module")
def algo(ray_session: None, beginner_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    algo = build(beginner_model_dir, num_env_runners=2)
    algo.open_pool(tmp_path_factory.mktemp("run") / "pool.sqlite")
    algo.train()
    yield algo
    algo.stop()


def engine_pid(algo: AgentAlgorithm) -> int:
    assert algo.rollout_workers is not None and algo.rollout_workers.engine_group is not None
    place, _ = ray.get(algo.rollout_workers.engine_group.handles()[0].place.remote())
    return int(place.split()[1].rstrip(","))


def runner_pids(algo: AgentAlgorithm) -> list[int]:
    return algo.env_runner_group.foreach_env_runner(lambda runner: os.getpid(), local_env_runner=False)


def kill_during(seconds: float, pid: int) -> threading.Thread:
    thread = threading.Thread(target=lambda: (time.sleep(seconds), os.kill(pid, signal.SIGKILL)))
    thread.start()
    return thread


def check_iteration(algo: AgentAlgorithm) -> dict[str, float]:
    metrics = algo.train()["agent"]
    asked = {(group, member) for group in range(4) for member in range(4)}
    assert [(t.group_id, t.member) for t in algo.last_trajectories] == sorted(asked)
    assert metrics["rollout/episodes"] == 16
    assert {step.policy_version for t in algo.last_trajectories for step in t.steps} == {algo.policy_version - 1}
    return metrics


def test_actors_start_side_by_side_where_all_find_room_beside_who_is_there(algo: AgentAlgorithm) -> None:
    settings = copy.copy(algo.settings)  # its engine and env runners have two of the four CPUs
    settings.num_env_runners = 1
    assert room_for_all(settings)
    settings.num_env_runners = 3
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


def test_an_engine_in_an_env_runner_that_dies_is_replaced_with_it_and_has_the_last_weights(
    ray_session: None, beginner_model_dir: Path
) -> None:
    algo = build(beginner_model_dir, num_env_runners=1, placement="colocate")
    try:
        check_iteration(algo)

        def break_engine(runner: Any) -> None:
            runner.engine.dead = "its step failed"

        assert algo.rollout_workers is not None
        runners = algo.rollout_workers.collector.runners
        runners.tell(runners.ids(), break_engine)
        before = runner_pids(algo)
        assert check_iteration(algo)["rollout_corr/logprob_diff_max"] < 1e-4
        assert runner_pids(algo) != before
    finally:
        algo.stop()


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
        assert list(pool.trajectories(Where(iteration=last))) == algo.last_trajectories
        sessions = Counter((s.iteration, s.group_id, s.member) for s in pool.sessions())
        places = {(i, group, member) for i in range(algo.iteration) for group in range(4) for member in range(4)}
        assert set(sessions) == places and set(sessions.values()) == {1}
        assert len(list(pool.trajectories())) == len(places), "no call is missing"
        assert {batch.session for batch in pool.batches()} == {s.id for s in pool.sessions()}


def test_checkpoints_move_between_one_learner_and_sharded_ones(
    ray_session: None, beginner_model_dir: Path, tmp_path: Path
) -> None:
    keys = {**KEYS, "model": str(beginner_model_dir), "num_env_runners": 0}
    one = AgentConfig().training(**keys).build_algo()
    two = AgentConfig().training(**{**keys, "num_learners": 2, "learner_sharding": "fsdp"}).build_algo()
    try:
        one.train()
        one.save_run_checkpoint(tmp_path / "000001")
        two.restore_run_checkpoint(tmp_path / "000001")
        first, second = one.train()["agent"], two.train()["agent"]
        assert second["rollout/return_mean"] == first["rollout/return_mean"]
        assert second["actor/grad_norm"] == pytest.approx(first["actor/grad_norm"], rel=1e-3)
        two.save_run_checkpoint(tmp_path / "000002")
        one.restore_run_checkpoint(tmp_path / "000002")
        assert one.iteration == 2
    finally:
        one.stop()
        two.stop()


def train(algo: AgentAlgorithm, path: Path, victims: dict[int, int]) -> tuple[RunFolder, str]:
    """Run to the end; after iteration ``i`` kill learner ``victims[i]``, once."""
    folder, shown, interrupts = RunFolder.create(path, algo.settings), io.StringIO(), Interrupts()
    loop = TrainLoop(algo, folder, Progress(shown), interrupts)
    victims = dict(victims)
    while not loop.finished:
        done = loop.advance()["iteration"]
        if done in victims:
            pids = algo.learner_group.foreach_learner(lambda learner: os.getpid())
            os.kill([result.get() for result in pids][victims.pop(done)], signal.SIGKILL)
    loop.close("done")
    return folder, shown.getvalue()


def test_killed_learners_are_replaced_and_the_curve_is_the_same(
    ray_session: None, beginner_model_dir: Path, tmp_path: Path
) -> None:
    keys = {"num_env_runners": 0, "iterations": 3, "eval_episodes": 4, "checkpoint_interval": 2}
    quiet, struck = build(beginner_model_dir, **keys), build(beginner_model_dir, **keys, num_learners=2)
    try:
        expected, _ = train(quiet, tmp_path / "quiet", {})
        # The first is lost before there is a checkpoint, the second after one.
        folder, shown = train(struck, tmp_path / "struck", {1: 1, 2: 0})
        assert "learner 1 of 2 died" in shown and "continue after iteration 0" in shown
        assert "learner 0 of 2 died" in shown and "continue after iteration 2" in shown
        for mine, theirs in zip(folder.read_metrics(), expected.read_metrics(), strict=True):
            for tag in ("iteration", "rollout/return_mean", "rollout/response_tokens", "actor/pg_loss"):
                assert mine.get(tag, 0.0) == pytest.approx(theirs.get(tag, 0.0), rel=1e-4), tag
        assert folder.read_summary()["learner_restarts"] == 2
        assert folder.read_summary()["episodes"] == expected.read_summary()["episodes"] == 3 * 16
    finally:
        quiet.stop()
        struck.stop()


def test_learners_that_keep_dying_end_the_run(
    ray_session: None, beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train_loop, "MAX_RESTARTS", 0)
    algo = build(beginner_model_dir, num_env_runners=0, num_learners=1, iterations=2)
    try:
        with pytest.raises(LearnerLost, match="learner 0 of 1 died while"):
            train(algo, tmp_path / "run", {1: 0})
        assert [iteration for iteration, _ in RunFolder(tmp_path / "run").complete_checkpoints()] == [1]
    finally:
        algo.stop()


def test_a_learner_and_an_engine_that_die_together_are_both_replaced(
    ray_session: None, beginner_model_dir: Path, tmp_path: Path
) -> None:
    """The engine's weights were the learner's, and are gone with it: all go on from the last checkpoint."""
    algo = build(beginner_model_dir, num_env_runners=1, num_learners=1, iterations=3, eval_episodes=0, stream=True)
    folder, shown = RunFolder.create(tmp_path / "run", algo.settings), io.StringIO()
    loop = TrainLoop(algo, folder, Progress(shown), Interrupts())
    try:
        loop.advance()
        (learner,) = [result.get() for result in algo.learner_group.foreach_learner(lambda learner: os.getpid())]
        for pid in (learner, engine_pid(algo)):
            os.kill(pid, signal.SIGKILL)
        while not loop.finished:
            loop.advance()
        loop.close("done")
    finally:
        algo.stop()
    assert "new learners continue after iteration" in shown.getvalue()
    assert folder.read_summary()["learner_restarts"] == 1
    assert [record["iteration"] for record in folder.read_metrics()] == [1, 2, 3]
    assert algo.policy_version == 3
