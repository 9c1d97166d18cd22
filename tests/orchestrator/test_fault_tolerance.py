"""Real Ray, real processes killed: the run goes on and no episode is lost or counted twice."""

import copy
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from orchestrator.killing import engine_pid, kill_during, kill_learner, open_loop, runner_pids
from ray.rllib.utils.actor_manager import FaultTolerantActorManager

from rl_agents.data.tasks import evaluation_specs
from rl_agents.errors import LearnerLost
from rl_agents.orchestrator.collector import Collector
from rl_agents.orchestrator.env_runner_handles import runners_of
from rl_agents.resources import room_for_all
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.trainer import train_loop
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

KEYS: dict[str, Any] = {"engine": "torch", "tasks_per_iteration": 4, "group_size": 4, "engine_timeout_s": 60.0}
#: Of an evaluation in which an engine is killed at forty percent, after an iteration and an undisturbed evaluation.
EPISODES = 48
STRIKING = {
    "env": "gymnasium:tests.orchestrator.process_envs:Striking", "env.train_tasks": 7, "env.test_tasks": 4,
    "num_engines": 2, "eval_episodes": 0, "max_turns": 6, "max_response_tokens": 6, "max_model_len": 128,
}  # fmt: skip


def build(model_dir: Path, **keys: Any) -> AgentAlgorithm:
    return AgentConfig().training(model=str(model_dir), **{**KEYS, **keys}).build_algo()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("striking") / "pid"


@pytest.fixture(scope="module")
def algo(ray_session: None, beginner_model_dir: Path, target: Path) -> Iterator[AgentAlgorithm]:
    kill = {"target": str(target), "at": 16 + EPISODES + 4 * EPISODES // 10}
    algo = build(beginner_model_dir, num_env_runners=1, **STRIKING, **{"env.kwargs": kill})
    algo.open_pool(target.with_name("pool.sqlite"))
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
    settings = copy.copy(algo.settings)  # its engines and env runner have two and a half of the four CPUs
    settings.num_engines, settings.num_env_runners = 1, 1
    assert room_for_all(settings)
    settings.num_env_runners = 2
    assert not room_for_all(settings)


def test_an_engine_killed_at_forty_percent_repeats_no_episode_and_is_back_before_new_weights(
    algo: AgentAlgorithm, target: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = algo.started_workers()
    group = workers.engine_group
    assert group is not None
    algo.sync_engines()
    specs = evaluation_specs([f"seed-{i}" for i in range(4)], EPISODES, 0)
    quiet = workers.collector.collect(specs, 1.0)
    target.write_text(str(engine_pid(algo, 1)))
    struck = workers.collector.collect(specs, 1.0)
    assert (struck.resampled, struck.events, len(struck.answers)) == (0, [], EPISODES)
    assert [[step.response_ids for step in t.steps] for t in struck.answers] == [
        [step.response_ids for step in t.steps] for t in quiet.answers
    ]
    assert {step.policy_version for t in struck.answers for step in t.steps} == {algo.policy_version}

    health, sync = list[Any](), group.push_weights

    def observed(*args: Any) -> None:
        health.extend(ray.get([handle.health.remote() for handle in group.handles()]))
        sync(*args)

    monkeypatch.setattr(group, "push_weights", observed)
    workers.push(algo.learner_group.export_weights(), algo.policy_version + 1)
    assert health == [(True, algo.policy_version)] * 2
    assert capsys.readouterr().out.count("; restoring it\n") == 1, "one line says so"


def test_when_all_engines_are_killed_they_come_back_with_the_last_weights(algo: AgentAlgorithm) -> None:
    threads = [kill_during(0.01, engine_pid(algo, number)) for number in range(2)]
    gaps = [check_iteration(algo)["rollout_corr/logprob_diff_max"] for _ in range(2)]
    assert max(gaps) < 1e-4 and not any(thread.join() for thread in threads)


def test_a_killed_env_runner_is_replaced_and_its_episodes_are_played_again(algo: AgentAlgorithm) -> None:
    os.kill(runner_pids(algo)[0], signal.SIGKILL)
    metrics = check_iteration(algo)
    assert metrics["rollout/resampled_episodes"] > 0 and metrics["rollout_corr/logprob_diff_max"] < 1e-4


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


def test_a_runner_that_hangs_does_not_hold_up_what_waits_for_the_record(ray_session, tmp_path, monkeypatch, capsys):
    """A checkpoint does, and every iteration: the limit on work finds the runner, and nothing else waits for it."""

    @ray.remote(num_cpus=0.1)
    class Recording:
        """Has the methods of RLlib's actors, and spares its process the import of RLlib."""

        def ping(self) -> str:
            return "pong"

        def apply(self, call: Any) -> Any:
            return call(self)

        def flush_recorder(self, timeout_s: float) -> bool:
            return True

    def hang(runner: Any) -> None:
        while not (tmp_path / "released").exists():
            time.sleep(0.05)

    manager = FaultTolerantActorManager([Recording.remote() for _ in range(2)])
    group = SimpleNamespace(
        _worker_manager=manager,
        num_remote_env_runners=manager.num_actors,
        healthy_env_runner_ids=manager.healthy_actor_ids,
    )
    runners = runners_of(group)
    collector = Collector(runners, None, 600.0)
    assert all(ray.get([actor.ping.remote() for actor in manager.actors().values()])) and collector.recorded()
    released = runners.send(runners.ids()[1], hang)
    assert not collector.recorded()
    assert f"env runner {runners.ids()[1]} did not confirm" in (shown := capsys.readouterr().out)
    assert "(sample_timeout_s=600)" in shown
    monkeypatch.setattr("rl_agents.orchestrator.collector.RECORDED_S", 600.0)
    assert not collector.recorded() and not capsys.readouterr().out, "it is waited for, and named, once"
    (tmp_path / "released").touch()
    ray.get([released, *collector._silent.values()])
    assert collector.recorded()
    dead, end = runners.ids()[0], time.monotonic() + 60
    ray.kill(manager.actors()[dead])
    while (whole := collector.recorded()) and time.monotonic() < end:
        time.sleep(0.1)
    assert not whole and runners.absent() == [dead]
    manager.clear()
