"""`async_level=k` in whole runs of one process: methods train, and a resumed run samples nothing twice."""

from pathlib import Path
from typing import Any

from trained import build, count_generations, equal, policy_weights, train

from rl_agents.store.reader import PoolReader
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.doubtful_keys import cautions

EXACT: dict[str, Any] = {"old_logprobs": "learner", "rollout_correction": "none"}


def versions(algo: AgentAlgorithm) -> set[int]:
    return {step.policy_version for trajectory in algo.last_trajectories for step in trajectory.steps}


def test_a_resumed_run_is_equal_bit_for_bit(beginner_model_dir: Path, tmp_path: Path) -> None:
    """Of a method that takes further tasks, in a curriculum. One behind: tests/algorithms/test_chain_gae.py."""
    keys = {
        **EXACT,
        "algo": "dapo",
        "task_sampling": "difficulty",
        "max_generation_batches": 40,
        "lr": 1e-4,
        "async_level": 2,
        "iterations": 7,
    }
    whole = build(beginner_model_dir, **keys)
    whole.open_pool(tmp_path / "pool.sqlite")
    before = train(whole, 3)
    whole.save_run_checkpoint(tmp_path / "000003")
    straight = train(whole, 2)  # what a kill would take back
    assert whole.pool is not None
    whole.pool.close()
    whole.pool = None
    straight += train(whole, 2)

    second = AgentAlgorithm.from_checkpoint(tmp_path / "000003")
    second.open_pool(tmp_path / "pool.sqlite")
    sampled = count_generations(second)
    assert train(second, 1) == straight[:1] and sampled == [], "the pool has what was in flight, and what came after"
    assert train(second, 1) == straight[1:2] and sampled, "except what the newest weights sampled: a kill may cut it"
    second.save_run_checkpoint(tmp_path / "000005")
    assert second.pool is not None
    second.pool.close()

    third = AgentAlgorithm.from_checkpoint(tmp_path / "000005")
    third.open_pool(tmp_path / "pool.sqlite")
    assert train(third, 2) == straight[2:]
    assert equal(policy_weights(whole), policy_weights(third))
    assert whole.place.difficulty is not None and whole.place == third.place and whole.place.position > 7 * 4, (
        "further tasks were asked for"
    )
    assert any(metrics["actor/grad_norm"] > 0 for metrics in [*before, *straight])
    assert third.pool is not None
    third.pool.close()
    with PoolReader(tmp_path / "pool.sqlite") as pool:
        learned = [session for batch in pool.batches() for session in [batch.session]]
    assert len(learned) == len(set(learned))


def test_without_a_pool_what_was_in_flight_is_sampled_again_by_newer_weights(beginner_model_dir, tmp_path) -> None:
    algo = build(beginner_model_dir, async_level=2, iterations=6, save_pool=False)
    assert any("save_pool=false" in line for line in cautions(algo.settings))
    train(algo, 3)
    algo.save_run_checkpoint(tmp_path / "000003")
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000003")
    for expected in (0, 1, 2):
        (metrics,) = train(second, 1)
        assert metrics["rollout/async_level"] == expected
        assert ("rollout_corr/logprob_diff_max" in metrics) == (expected == 0), "older weights sampled the others"
        assert expected or versions(second) == {3}
