"""Every algorithm for real: one iteration on guess_numbers; DAPO's retries; an algorithm in one file."""

import math
import re
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
import trained
from test_recipes import LEARNING, ROOT

import rl_agents.algorithms as registry
from rl_agents.algorithms.chain_gae import ChainCritic
from rl_agents.config.options import keys_of, read_options
from rl_agents.data.selection import SelectionError
from rl_agents.errors import InputError
from rl_agents.trainer.algorithm import AgentAlgorithm

KEYS: dict[str, Any] = {"tasks_per_iteration": 3, "group_size": 4, "minibatches": 1}


def running(model_dir: Path, algo: str, env: str = "guess_numbers", **keys: Any) -> Any:
    return trained.running(model_dir, env, **{**KEYS, **keys, "algo": algo})


def weights(algo: AgentAlgorithm) -> dict[str, torch.Tensor]:
    state = algo.learner_group.full_state()["rl_module"]
    return {f"{net}/{n}": t.clone() for net, tensors in state.items() for n, t in tensors.items()}


#: What other tests train with as well: the golden runs, `test_search_training.py`, and the ablations below.
TRAINED = {"grpo", "ppo", "chain-gae", "3spo", "steppo", "vspo"}


@pytest.mark.parametrize("name", [*(name for name in LEARNING if name not in TRAINED), "sft"])
def test_one_iteration_moves_the_weights(beginner_model_dir: Path, name: str) -> None:
    with running(beginner_model_dir, name) as algo:
        before = weights(algo)
        metrics = algo.train()["agent"]
        after = weights(algo)
    assert all(math.isfinite(value) for value in metrics.values()), metrics
    assert any(not torch.equal(before[n], after[n]) for n in before if n.startswith("default_policy"))
    if registry.ALGORITHMS[name].critic:
        assert any(not torch.equal(before[n], after[n]) for n in before if n.startswith("critic"))
    elif registry.ALGORITHMS[name].source == "rollouts":
        assert metrics["rollout/generation_batches"] >= 1


@pytest.mark.parametrize(("keys", "clipped"), [({}, True), ({"old_logprobs": "learner", "top_p": 0.95}, False)])
def test_narrow_clips_in_bfloat16_before_the_first_step(beginner_model_dir, keys, clipped) -> None:
    with running(beginner_model_dir, "gspo", dtype="bfloat16", clip_low=3e-4, clip_high=4e-4, **keys) as algo:
        metrics = algo.train()["agent"]
    assert metrics["rollout_corr/logprob_diff_max"] > 0
    assert (metrics["actor/clip_fraction"] > 0) == clipped
    assert clipped or metrics["actor/ratio_mean"] == 1.0


#: Each part alone: `learner/test_learner_group.py`, `test_tree_credit.py`.
STEPPO_ARMS = [
    {"steppo_credit": "token_gae", "ratio_level": "token", "loss_agg_mode": "token-mean"},
    {"sample_layout": "per_step", "loss_agg_mode": "step-mean-in-traj"},
]


@pytest.mark.parametrize("keys", STEPPO_ARMS)
def test_steppo_ablations(beginner_model_dir: Path, keys: dict) -> None:
    with running(beginner_model_dir, "steppo", **keys) as algo:
        metrics = algo.train()["agent"]
    assert metrics["actor/grad_norm"] > 0 and math.isfinite(metrics["critic/value_loss"])


def test_mismatch_correction_and_kl_in_the_reward_train(beginner_model_dir: Path) -> None:
    keys = {"old_logprobs": "learner", "rollout_correction": "token_tis", "kl_in_reward_coef": 0.1}
    with running(beginner_model_dir, "grpo", **keys) as algo:
        first, second = (algo.train()["agent"] for _ in range(2))
    assert first["rollout_corr/rollout_is_mean"] == pytest.approx(1.0, abs=1e-3)
    assert first["rollout_corr/k3_kl"] < 1e-6
    assert first["actor/reward_kl_penalty_coeff"] == 0.1
    assert math.isfinite(second["actor/reward_kl_penalty"])


def test_everything_rejected_skips_the_iteration(beginner_model_dir: Path) -> None:
    keys = {"old_logprobs": "learner", "rollout_correction": "geo_rs", "rollout_correction_bounds": [5.0, 6.0]}
    with running(beginner_model_dir, "chain-gae", **keys) as algo:
        before = weights(algo)
        metrics = algo.train()["agent"]
        assert all(torch.equal(tensor, before[name]) for name, tensor in weights(algo).items())
    assert metrics["actor/skipped_iterations"] == 1 and algo.place.position == 3
    assert isinstance(algo.memory, ChainCritic) and len(algo.memory.chain) == 0, "nor is it remembered"


class AlwaysWon(gymnasium.Env[str, str]):
    """Whatever is done, it succeeds."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "3 of 4 : 123 1A2B", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "", 1.0, True, False, {"success": True}


def test_dynamic_sampling_gives_up(beginner_model_dir: Path) -> None:
    said = r"0 of 9 tasks had rollouts that differ in return.*max_generation_batches=3"
    env = f"gymnasium:{__name__}:AlwaysWon"
    with running(beginner_model_dir, "dapo", env, max_generation_batches=3) as algo:
        with pytest.raises(SelectionError, match=said):
            algo.train()
        assert algo.place.position == 0 and not algo.learning, "the iteration left no trace"


def test_an_algorithm_is_one_file(beginner_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = (ROOT / "docs" / "how-to" / "extend.md").read_text(encoding="utf-8")
    block = re.search(r"`rl_agents/algorithms/(\w+)\.py`.*?```python\n(.*?)```", guide, re.DOTALL)
    assert block is not None, "docs/how-to/extend.md shows no algorithm"
    (tmp_path / f"{block[1]}.py").write_text(block[2], encoding="utf-8")
    monkeypatch.setattr(registry, "__path__", [*registry.__path__, str(tmp_path)])
    found = registry.discover()
    assert list(found)[-1] == "median-grpo" and len(found) == len(registry.ALGORITHMS) + 1
    monkeypatch.setitem(registry.ALGORITHMS, "median-grpo", found["median-grpo"])
    monkeypatch.setitem(registry.KEYS, "median_weight", keys_of(found["median-grpo"].keys)["median_weight"])
    with pytest.raises(InputError, match=r"median_weight=2: must be at most 1"):
        read_options(found["median-grpo"].keys, {"median_weight": 2})
    with running(beginner_model_dir, "median-grpo", median_weight=0.5) as algo:
        assert algo.settings.median_weight == 0.5
        assert algo.train()["agent"]["actor/grad_norm"] > 0
