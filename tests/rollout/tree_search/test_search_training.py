"""3spo for real on guess_numbers: it learns, resumes exactly within searches, and refuses what it cannot do."""

import json
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from rollout.tree_search.drawn import searched, train
from trained import equal
from trained import policy_weights as weights

from rl_agents.errors import InputError
from rl_agents.rollout.tree_search.saved import explorer_to_json
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig

KEYS: dict[str, Any] = {"algo": "3spo", "tasks_per_iteration": 4, "group_size": 4, "search_steps": 48, "lr": 1e-3}


def build(model_dir: Path, env: str = "guess_numbers", **keys: Any) -> AgentAlgorithm:
    return AgentConfig().environment(env).training(model=str(model_dir), **{**KEYS, **keys}).local().build_algo()


def test_three_and_three_iterations_are_six(beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {"score_alpha": 1.0, "iterations": 6}
    whole = build(beginner_model_dir, **keys)
    straight, finished = [], []
    for iteration in range(6):
        if iteration == 3:
            assert any(search.frontier for search in searched(whole).searches), "the stop is within searches"
            whole.save_run_checkpoint(tmp_path / "000003")
        straight += train(whole, 1)
        finished += [(t.group_id, t.member) for t in whole.last_trajectories]
    assert len(set(finished)) == len(finished) == searched(whole).states.finished, "none is counted twice"
    assert not list(tmp_path.rglob("*.pkl"))
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000003")
    assert train(second, 3) == straight[3:]
    assert explorer_to_json(searched(second)) == explorer_to_json(searched(whole))
    assert equal(weights(whole), weights(second))
    assert second.place.position == whole.place.position and any(m["actor/grad_norm"] > 0 for m in straight[3:])
    rates = [metrics["actor/lr"] for metrics in straight]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 1e-3 and rates[5] == pytest.approx(1e-3 * (1 / 3 + 0.02))


def test_every_update_has_its_own_version_and_sampling_says_which_it_used(beginner_model_dir: Path) -> None:
    algo = build(beginner_model_dir, reading="published", tasks_per_iteration=1, search_steps=24)
    metrics = algo.train()["agent"]
    updates = int(metrics["search/optimizer_steps"])
    assert updates >= 4 and algo.policy_version == updates and metrics["search/syncs"] == updates
    versions = [step.policy_version for step in searched(algo).counts.steps]
    assert versions == sorted(versions) and set(versions) == set(range(updates))
    assert metrics["rollout_corr/logprob_diff_max"] < 1e-4, "never an old policy's samples"
    assert metrics["actor/clip_fraction"] == 0.0


class Noisy(gymnasium.Env[str, str]):
    """No two episodes are alike."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)
    visits = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        type(self).visits += 1
        return f"3 of 4 : 123 1A2B {'12' * (self.visits % 7)}", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "1A2B", 0.0, False, False, {}


def test_an_environment_that_cannot_be_reached_again_is_refused_at_the_start(beginner_model_dir: Path) -> None:
    gymnasium.register("tests/Noisy-v0", entry_point=lambda **_: Noisy())
    with pytest.raises(InputError, match=r"gymnasium:tests/Noisy-v0 cannot be branched by replay: it shows another"):
        build(beginner_model_dir, "gymnasium:tests/Noisy-v0")


def test_the_checkpoint_of_a_search_is_small_and_needed(beginner_model_dir: Path, tmp_path: Path) -> None:
    algo = build(beginner_model_dir, reading="published")
    train(algo, 2)
    algo.save_run_checkpoint(tmp_path / "000002")
    file = tmp_path / "000002" / "search.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    nodes = [node for search in data["searches"] for node in search["nodes"]]
    assert nodes and not any("snapshot" in node or "dialogue" in node for node in nodes)
    assert len(data["statistics"]["keys"]) == len(searched(algo).states) > 0
    file.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"damaged checkpoint: .*search\.json"):
        algo.restore_run_checkpoint(tmp_path / "000002")
    file.unlink()
    with pytest.raises(InputError, match=r"search\.json is missing"):
        algo.restore_run_checkpoint(tmp_path / "000002")
