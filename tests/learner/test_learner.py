"""What a learner does around the loss: which networks move, what is measured when, state and export."""

import copy
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learner.learners import build_group, random_rows
from torch import distributed as dist
from transformers import AutoModelForCausalLM

from rl_agents.config import Settings
from rl_agents.inference.weights import unpack
from rl_agents.learner.learner import AgentLearner, _sum_gradients
from rl_agents.learner.training_data import AgentTrainingData


def training_data(settings: Settings, rows: list[Any] | None = None) -> AgentTrainingData:
    return AgentTrainingData.build(rows or random_rows(8, 60), settings, np.random.default_rng(0))


def weights(learner: AgentLearner, network: str) -> dict[str, torch.Tensor]:
    return copy.deepcopy(dict(learner.module[network].state_dict()))


def moved(learner: AgentLearner, network: str, before: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(tensor, before[name]) for name, tensor in learner.module[network].state_dict().items())


def test_while_the_critic_warms_up_it_learns_alone(tiny_model_dir: Path) -> None:
    group, settings = build_group(str(tiny_model_dir), lr=1e-2, critic_lr=1e-2)
    learner, data = group._learner, training_data(settings)
    for train_policy in (False, True):
        before = {name: weights(learner, name) for name in ("default_policy", "critic", "reference")}
        metrics = group.learn(data, train_policy=train_policy)
        assert moved(learner, "critic", before["critic"])
        assert moved(learner, "default_policy", before["default_policy"]) == train_policy
        assert ("actor/pg_loss" in metrics) == train_policy and "critic/value_loss" in metrics
        assert not moved(learner, "reference", before["reference"])
    before = weights(learner, "default_policy")
    learner.update(data)
    assert moved(learner, "default_policy", before), "unless it is told not to, it trains both"


def test_no_gradient_outlives_an_update(tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_agents.learner.learner.LARGE", 0)  # freed memory is handed back, too
    group, settings = build_group(str(tiny_model_dir))
    group._learner.update(training_data(settings))
    assert all(parameter.grad is None for parameter in group._learner.optimizers.parameters())


def test_engine_and_learner_are_compared_before_the_first_step_only(tiny_model_dir: Path) -> None:
    group, settings = build_group(str(tiny_model_dir), algo="grpo", lr=0.1, minibatches=4)
    rows = random_rows(8, 60)
    for row, logprobs in zip(rows, group.score(rows, "default_policy"), strict=True):
        row.logprobs = logprobs
    began = time.perf_counter()
    metrics = group.learn(training_data(settings, rows))
    assert metrics["rollout_corr/logprob_diff_max"] < 1e-5, "later steps would measure what was learned"
    assert metrics["actor/kl_reference"] > 0.1
    assert 0.0 < metrics["timing_s/update"] < time.perf_counter() - began


def test_a_skipped_step_is_reported_and_spoils_no_mean(tiny_model_dir: Path) -> None:
    group, settings = build_group(str(tiny_model_dir), algo="grpo", minibatches=2)
    rows = random_rows(8, 60)
    plain = group.learn(training_data(settings, rows))
    assert plain["actor/skipped_steps"] == 0.0
    rows[0].advantages = rows[0].advantages * np.nan  # type: ignore[operator]
    metrics = group.learn(training_data(settings, rows))
    assert metrics["actor/skipped_steps"] == 1.0, "one of two steps"
    assert 0.1 * plain["actor/grad_norm"] < metrics["actor/grad_norm"] < 10 * plain["actor/grad_norm"]
    settings.minibatches, before = 1, weights(group._learner, "default_policy")
    assert group.learn(training_data(settings, rows))["actor/skipped_steps"] == 1.0
    assert not moved(group._learner, "default_policy", before)


def test_a_state_may_be_restored_in_parts_and_inference_holds_none(tiny_model_dir: Path) -> None:
    group, settings = build_group(str(tiny_model_dir), lr=1e-2)
    learner = group._learner
    assert learner.get_state(inference_only=True) == {"rl_module": {}}
    before = weights(learner, "default_policy")
    start = copy.deepcopy(learner.get_state())
    group.learn(training_data(settings))
    learner.set_state({"optimizer": start["optimizer"]})
    assert learner.optimizers.steps == 0 and moved(learner, "default_policy", before)
    learner.set_state({"rl_module": start["rl_module"]})
    assert not moved(learner, "default_policy", before)


def test_engines_and_folders_get_the_policy_that_was_trained(tiny_model_dir: Path, tmp_path: Path) -> None:
    group, settings = build_group(str(tiny_model_dir), algo="grpo", lr=1e-2, dtype="bfloat16")
    group.learn(training_data(settings))
    group.save_hf(tmp_path / "hf")
    saved = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").state_dict()
    trained = dict(group._learner.policy.lm.state_dict())
    exported = unpack(group.export_weights())
    assert set(exported) == set(trained) - {"lm_head.weight"}, "the head is the embedding"
    for name, tensor in exported.items():
        assert torch.equal(tensor, trained[name].bfloat16()) and torch.equal(saved[name].bfloat16(), tensor), name
    assert (tmp_path / "hf" / "tokenizer.json").is_file()


def test_a_pass_that_counts_for_nothing_leaves_gradients_of_zero(tiny_model_dir: Path) -> None:
    """Sharded learners gather weights together, so one with fewer rows goes along with the others."""
    group, _ = build_group(str(tiny_model_dir))
    learner, networks = group._learner, ["default_policy", "critic"]
    learner.optimizers.zero_grad()
    learner._dummy_pass(networks)
    for network in networks:
        gradients = [p.grad for p in learner.module[network].parameters()]
        assert gradients and all(gradient is not None and not gradient.any() for gradient in gradients), network
    learner.optimizers.zero_grad()
    with torch.no_grad():
        learner._dummy_pass(["reference", "default_policy"])
    learner._dummy_pass(["reference"])
    assert all(parameter.grad is None for parameter in learner.module["default_policy"].parameters())


def test_a_learner_without_rows_adds_zeros_to_the_sum_of_gradients() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in ((2, 3), (4,), (1, 2))]
    parameters[0].grad, parameters[2].grad = torch.arange(6.0).view(2, 3), torch.tensor([[7.0, 8.0]])
    before = parameters[0].grad
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        _sum_gradients(parameters)
    finally:
        dist.destroy_process_group()
    expected = [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [0.0] * 4, [[7.0, 8.0]]]
    assert [parameter.grad.tolist() for parameter in parameters] == expected  # type: ignore[union-attr]
    assert parameters[0].grad is before, "in place: optimizers hold on to it"


@pytest.mark.parametrize("tokens", [1, 10_000])
def test_scores_come_back_in_the_order_of_the_rows(tiny_model_dir: Path, tokens: int) -> None:
    group, _ = build_group(str(tiny_model_dir), tokens_per_microbatch=tokens)
    model = AutoModelForCausalLM.from_pretrained(tiny_model_dir).eval()
    rows = random_rows(5, 60)
    for row, found in zip(rows, group.score(rows, "default_policy"), strict=True):
        ids = torch.from_numpy(row.input_ids).long()[None]
        with torch.no_grad():
            table = torch.log_softmax(model(ids).logits[0, :-1], -1)
        expected = np.r_[0.0, table.gather(1, ids[0, 1:, None])[:, 0].numpy()] * row.mask
        assert found.dtype == np.float32 and found == pytest.approx(expected, abs=1e-4)
    assert group.score([], "default_policy") == []


def test_a_loss_is_its_mean_over_optimizer_steps(tiny_model_dir: Path) -> None:
    found = []
    for epochs in (1, 3):
        keys = {"lr": 1e-9, "critic_lr": 1e-9, "minibatches": 1, "epochs": epochs}
        group, settings = build_group(str(tiny_model_dir), **keys)
        found.append(group.learn(training_data(settings)))
    for name in ("actor/pg_loss", "critic/value_loss", "actor/grad_norm"):
        assert found[1][name] == pytest.approx(found[0][name], rel=1e-3), name
