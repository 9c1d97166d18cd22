"""The whole iteration in one process: it learns from rows, resumes exactly, and outlives broken environments."""

from pathlib import Path
from typing import Any

import pytest
import torch
from trained import KEYS, build, equal, policy_weights, train

from rl_agents.errors import InputError
from rl_agents.trainer.algorithm import AgentAlgorithm, AgentConfig


def test_resume_is_exact(beginner_model_dir: Path, tmp_path: Path) -> None:
    """With three networks; with one, or with a memory: the tests of pools, of black boxes and of chain-gae."""
    whole = build(beginner_model_dir, algo="ppo", kl_coef=0.01)
    train(whole, 1)
    whole.save_run_checkpoint(tmp_path / "000001")
    straight = train(whole, 2)
    second = AgentAlgorithm.from_checkpoint(tmp_path / "000001")
    after = train(second, 2)
    assert after == straight
    assert equal(policy_weights(whole), policy_weights(second))
    assert second.iteration == 3
    assert any(metrics["actor/grad_norm"] > 0 for metrics in after), "nothing was learned, so nothing was compared"


@pytest.mark.parametrize("chosen", [{"algo": "3spo", "search_steps": 96}, {"algo": "ppo"}], ids=["3spo", "ppo"])
def test_a_run_whose_rows_share_their_beginnings_is_the_same_run(beginner_model_dir, chosen: dict[str, Any]) -> None:
    # So small a rate that the last bits of two gradients do not make two runs sample different tokens.
    keys = {**chosen, "sample_layout": "per_step", "group_size": 8, "entropy_coef": 0.01, "lr": 1e-6}
    flat, shared = (train(build(beginner_model_dir, **keys, prefix_sharing=kind), 1) for kind in (False, True))
    shares = [metrics.pop("actor/forwarded_share") for metrics in shared if "actor/grad_norm" in metrics]
    assert shares and max(shares) < 0.9 and any(metrics.get("actor/grad_norm") for metrics in flat)
    for expected, found in zip(flat, shared, strict=True):
        assert found == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_engine_and_learner_agree_and_a_checkpoint_is_a_hugging_face_folder_of_its_algorithm(
    beginner_model_dir: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    keys = {"minibatches": 1, "lr": 1e-2}
    algo = build(beginner_model_dir, **keys)
    metrics = train(algo, 2)
    assert all(found["rollout_corr/logprob_diff_max"] < 1e-4 for found in metrics)
    assert train(build(beginner_model_dir, seed=1, **keys), 1) != metrics[:1], "another seed is another run"
    algo.save_run_checkpoint(tmp_path / "000002")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "000002" / "hf")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "000002" / "hf")
    weights = policy_weights(algo)
    assert all(torch.equal(tensor, weights[f"lm.{name}"]) for name, tensor in model.state_dict().items())
    assert tokenizer.tokenize("<think> 251 </think> 1A2B") == ["<think>", "251", "</think>", "1A2B"]
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InputError, match="contains something other than a checkpoint"):
        algo.save_to_path(tmp_path)
    assert (tmp_path / "thesis.tex").exists()
    assert not list(tmp_path.rglob("*.pkl")) and not list(tmp_path.rglob("*.bin"))
    with pytest.raises(InputError, match="that run has algo=grpo, not ppo"):
        build(beginner_model_dir, algo="ppo").restore_run_checkpoint(tmp_path / "000002")


def test_tune_builds_it_from_a_dictionary(beginner_model_dir: Path, tmp_path: Path) -> None:
    keys = {**KEYS, "model": str(beginner_model_dir), "algo": "ppo"}
    space = AgentConfig().environment("guess_numbers", prompt="compact").training(**keys).local().to_dict()
    with pytest.raises(InputError, match="unknown key 'lrr': did you mean 'lr'"):
        AgentAlgorithm.default_resource_request({**space, "lrr": 1e-2})
    assert AgentAlgorithm.default_resource_request({**space, "lr": 1e-2}).bundles == [{"CPU": 1.0}]
    algo = AgentAlgorithm(config={**space, "lr": 1e-2})
    assert algo.train()["config"]["lr"] == 1e-2 and (algo.settings.algo, algo.settings.num_env_runners) == ("ppo", 0)
    assert AgentAlgorithm.from_checkpoint(algo.save(str(tmp_path / "saved")).checkpoint).iteration == 1
    assert AgentAlgorithm.from_checkpoint(algo.save_to_path()).iteration == 1


def test_lora_learns_and_resumes(beginner_model_dir: Path, tmp_path: Path) -> None:
    algo = build(beginner_model_dir, lora_rank=4, lr=1e-2)
    train(algo, 1)
    algo.save_run_checkpoint(tmp_path / "000001")
    expected = train(algo, 1)
    assert train(AgentAlgorithm.from_checkpoint(tmp_path / "000001"), 1) == expected


def test_methods_of_rllib_work_or_say_what_to_use(beginner_model_dir: Path) -> None:
    with pytest.raises(InputError, match=r"env_runners\(\) does not work: set keys, such as training\(num_env_runners"):
        AgentConfig().env_runners(num_env_runners=2)
    algo = build(beginner_model_dir)
    metrics = algo.evaluate()["agent"]
    assert metrics["eval/episodes"] == 8 and 0 <= metrics["eval/success_rate"] <= 1
    assert sum(p.numel() for p in algo.get_module().parameters()) > 1000 and algo.get_module("nobody") is None
    for name in ("get_state", "set_state", "set_weights", "get_policy", "compute_single_action"):
        with pytest.raises(InputError, match=rf"AgentAlgorithm\.{name}\(\) does not work: \w+"):
            getattr(algo, name)({})
    algo.stop()
    algo.stop()
    with pytest.raises(InputError, match="the algorithm was stopped; build another one"):
        algo.train()


def test_what_learners_raise_as_they_end_leaves_nothing_open(beginner_model_dir, tmp_path, monkeypatch) -> None:
    def fall() -> None:
        raise RuntimeError("a learner does not let go")

    algo = build(beginner_model_dir)
    algo.open_pool(tmp_path / "pool.sqlite")
    monkeypatch.setattr(algo.learner_group, "shutdown", fall)
    with pytest.raises(RuntimeError, match="does not let go"):
        algo.stop()
    assert algo.rollout_workers is not None and algo.rollout_workers.engine is not None
    assert algo.rollout_workers.engine.model is None, "the engine is closed"  # type: ignore[attr-defined]
    again = build(beginner_model_dir)
    again.open_pool(tmp_path / "pool.sqlite")  # which one process at a time may write to
    again.stop()
