"""The pool of a training run holds what was sampled, learned from and worth what; a resumed run reuses it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from trained import build, count_generations, equal, policy_weights, train

from rl_agents.config import Settings
from rl_agents.data.trajectory import Trajectory
from rl_agents.envs.guess_numbers import env
from rl_agents.reporting.run_folder import restored_settings
from rl_agents.store.actor import UNREACHABLE_S
from rl_agents.store.reader import PoolReader, StoreQuery
from rl_agents.store.records import Call
from rl_agents.store.trajectory_store import PoolError
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.run_store import RunPool

SEARCH: dict[str, Any] = {
    "algo": "3spo", "search_steps": 60, "tasks_per_iteration": 4, "branching": "replay",
    "collapse_monitor": "off",  # its episodes are no experience: a resumed run rolls them out again
}  # fmt: skip
CURRICULUM = {"task_sampling": "difficulty", "task_uniform_share": 0.5}


def recorded(algo: AgentAlgorithm, path: Path, iterations: int) -> list[list[Trajectory]]:
    """Train with a pool; return the trajectories of every iteration."""
    algo.open_pool(path)
    played = []
    for _ in range(iterations):
        train(algo, 1)
        played.append(algo.last_trajectories)
    return played


def test_the_pool_holds_every_episode_as_it_was(beginner_model_dir: Path, tmp_path: Path) -> None:
    algo = build(beginner_model_dir, algo="ppo")
    played = recorded(algo, tmp_path / "pool.sqlite", 2)
    algo.save_run_checkpoint(tmp_path / "000002")
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        for iteration, trajectories in enumerate(played):
            assert list(pool.trajectories(StoreQuery(iteration=iteration))) == trajectories
        sessions = list(pool.stored())
        assert {stored.state for stored in sessions} == {"trained"}
        assert Counter(batch.session for batch in pool.batches()) == {stored.session.id: 1 for stored in sessions}
        credit = [item for stored in sessions for item in pool.credit(stored.session.id)]
    assert len(credit) == sum(len(t.steps) for t in [*played[0], *played[1]])
    assert all(item.value is not None for item in credit) and len({item.advantage for item in credit}) > 10


@pytest.mark.parametrize("keys", [{"algo": "grpo"}, SEARCH], ids=["episodes", "search"])
def test_a_resumed_run_samples_nothing_again(beginner_model_dir: Path, tmp_path: Path, keys: dict[str, Any]) -> None:
    """What a curriculum remembers of its tasks is as exact."""
    whole = build(beginner_model_dir, **keys, **CURRICULUM)
    whole.open_pool(tmp_path / "pool.sqlite")
    train(whole, 1)
    whole.save_run_checkpoint(tmp_path / "000001")
    straight = train(whole, 1)
    weights = policy_weights(whole)
    train(whole, 1)
    assert whole.pool is not None
    whole.pool.close()  # what is killed instead leaves the same file (tests/store/test_killed_writers.py)

    with PoolReader(tmp_path / "pool.sqlite") as pool:
        newest = max(call.policy_version for call in pool.calls())

    second = AgentAlgorithm.from_checkpoint(tmp_path / "000001")
    second.open_pool(tmp_path / "pool.sqlite")
    sampled = count_generations(second)
    assert train(second, 1) == straight and sampled == []
    assert equal(weights, policy_weights(second))
    assert second.place.difficulty is not None
    train(second, 1)
    assert second.place == whole.place
    assert sampled, "what the newest weights had sampled is sampled again: a kill may have cut it"
    second.save_run_checkpoint(tmp_path / "000003")
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        counted = Counter((batch.iteration, batch.update, batch.position) for batch in pool.batches())
        learned_twice = [session for session, times in Counter(b.session for b in pool.batches()).items() if times > 1]
        seeds = Counter(call.sampling_seed for call in pool.calls())
        again = {call.policy_version for call in pool.calls() if seeds[call.sampling_seed] > 1}
        lost = pool.sessions(StoreQuery(lost=True))
    assert set(counted.values()) == {1} and {place[0] for place in counted} == {0, 1, 2}
    assert learned_twice == [] and again == {newest}
    assert lost and {session.iteration for session in lost} == {1, 2}


def test_an_environment_that_answers_differently_is_sampled_anew(
    beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt decides, not the seed alone: another observation asks for other tokens."""
    first = build(beginner_model_dir)
    first.open_pool(tmp_path / "pool.sqlite")
    train(first, 2)
    assert first.pool is not None
    first.pool.close()
    end = env.GuessNumbersEnv._end_turn
    monkeypatch.setattr(
        env.GuessNumbersEnv, "_end_turn", lambda self, state, said, **rest: end(self, state, 2 * f"{said} ", **rest)
    )
    second = build(beginner_model_dir)
    second.open_pool(tmp_path / "pool.sqlite")
    sampled = count_generations(second)
    train(second, 1)
    episodes = len(second.last_trajectories)
    steps = sum(len(t.steps) for t in second.last_trajectories)
    assert 0 < len(sampled) < steps and len(sampled) <= steps - episodes, "only first prompts are the same"
    assert second.pool is not None
    second.pool.close()
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        assert list(pool.trajectories()) == second.last_trajectories


def resumed_run(checkpoint: Path, pool: Path, **keys: Any) -> AgentAlgorithm:
    settings = restored_settings(checkpoint / "config.yaml")
    settings.update(keys)
    algo = AgentAlgorithm.from_settings(settings)
    algo.restore_run_checkpoint(checkpoint)
    algo.open_pool(pool)
    return algo


def test_a_run_resumed_with_another_learning_rate_is_that_of_its_own_samples(
    beginner_model_dir: Path, tmp_path: Path
) -> None:
    """Later versions under the old keys were other weights: neither this run nor its next resume reuses them."""
    pool, checkpoint = tmp_path / "pool.sqlite", tmp_path / "000001"
    whole = build(beginner_model_dir)
    whole.open_pool(pool)
    train(whole, 1)
    whole.save_run_checkpoint(checkpoint)
    train(whole, 3)
    assert whole.pool is not None
    whole.pool.close()
    expected = train(resumed_run(checkpoint, tmp_path / "empty.sqlite", lr=1e-3), 3)

    second = resumed_run(checkpoint, pool, lr=1e-3)
    sampled = count_generations(second)
    assert train(second, 2) == expected[:2] and sampled
    assert second.pool is not None
    second.pool.close()
    third = resumed_run(checkpoint, pool, lr=1e-3, eval_interval=3)
    again = count_generations(third)
    assert train(third, 1) == expected[:1] and again == []
    assert train(third, 2) == expected[1:]


RESUMES: dict[str, tuple[list[dict[str, Any]], list[int]]] = {
    "the same keys": ([{}, {}], [1, 2, 3]),
    "keys that do not change the policy": ([{"eval_interval": 3, "num_learners": 1, "iterations": 9}], [1, 2]),
    "another learning rate": ([{"lr": 1.0}], [2]),
    "the same from then on": ([{"lr": 1.0}, {"lr": 1.0}], [2, 3]),
    "and back": ([{"lr": 1.0}, {}], [3]),
    "an environment's key": ([{"env.progress": "shrunk"}], [2]),
    "more iterations of a decaying rate": ([{"lr_decay": 0.5}, {"lr_decay": 0.5, "iterations": 9}], [3]),
    "other tasks": ([{"tasks_changed": "accept"}, {}], [2, 3]),
}


@pytest.mark.parametrize(("resumes", "kept"), RESUMES.values(), ids=RESUMES)
def test_calls_count_while_keys_lead_to_the_same_policy(
    tmp_path: Path, resumes: list[dict[str, Any]], kept: list[int]
) -> None:
    """One call before any resume, and one after each."""
    for number, keys in enumerate([{}, *resumes], 1):
        pool = RunPool(tmp_path / "pool.sqlite", Settings.from_dict({"num_env_runners": 0, **keys}))
        if number == 1:
            pool.begin()
        else:
            pool.resumed(0)
        pool._writer.add(Call(number, 0, [1], [2], [-0.5], 0, "stop"))
        pool.flush()
        found = pool.calls_since(0)
        pool.close()
    assert list(found) == kept


def test_a_writer_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no less time than its clients take to report that it does not come back."""

    def flush(timeout_s: float) -> None:
        assert timeout_s > UNREACHABLE_S
        raise TimeoutError

    pool = RunPool(tmp_path / "pool.sqlite", Settings.from_dict({"num_env_runners": 0}))
    monkeypatch.setattr(pool._writer, "flush", flush)
    with pytest.raises(PoolError, match=r"pool\.sqlite: the pool's writer did not answer within 180 s"):
        pool.checkpoint(1)
    pool.close()


def test_a_runner_that_records_already_is_left_as_it_is(beginner_model_dir: Path, tmp_path: Path) -> None:
    """Every loss connects all runners again: no second queue to the pool, nothing fetched once more."""
    algo = build(beginner_model_dir)
    algo.open_pool(tmp_path / "pool.sqlite")
    train(algo, 1)
    algo.save_run_checkpoint(tmp_path / "000001")
    runner, collector = algo.env_runner_group.local_env_runner, algo.rollout_workers.collector
    before = runner.recorder
    collector.fault_tolerance.connect()
    assert runner.recorder is before
    algo.restore_run_checkpoint(tmp_path / "000001")
    resumed = runner.recorder
    assert resumed is not before and resumed.resumes == 1 and resumed.sink is before.sink
    algo.stop()
