"""The same update whatever the number of learners and the micro-batch size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_agents.core.config import AgentConfig
from rl_agents.core.learner_group import AgentLearnerGroup
from rl_agents.core.training_data import AgentTrainingData
from rl_agents.data.rows import Row
from rl_agents.settings import Settings


def random_rows(count: int, vocabulary: int, seed: int = 0) -> list[Row]:
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(count):
        length = int(rng.integers(6, 40))
        mask = (rng.random(length) < 0.5).astype(np.float32)
        mask[0], mask[-1] = 0, 1
        rows.append(
            Row(
                trajectory=index,
                group_id=index // 4,
                input_ids=rng.integers(0, vocabulary, length).astype(np.int32),
                mask=mask,
                logprobs=(-rng.random(length) * mask).astype(np.float32),
                segments=np.where(mask > 0, 0, -1).astype(np.int32),
                rewards=np.zeros(length, np.float32),
                advantages=(rng.standard_normal() * mask).astype(np.float32),
                values=(rng.standard_normal(length) * mask).astype(np.float32),
                returns=(rng.standard_normal(length) * mask).astype(np.float32),
                reference_logprobs=(-rng.random(length) * mask).astype(np.float32),
            )
        )
    return rows


def build_group(model_dir: str, **keys: object) -> tuple[AgentLearnerGroup, Settings]:
    config = AgentConfig()
    config.agent = Settings.from_dict({"algo": "ppo", "model": model_dir, "kl_coef": 0.01, **keys})
    config.model_dir = model_dir
    config._apply_settings()
    group = config.build_learner_group(rl_module_spec=config.get_multi_rl_module_spec())
    return group, config.agent


def updated(model_dir: str, **keys: object) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """First moments after one optimiser step (a tenth of the clipped gradient) and the metrics of the step.

    Weights would not do: Adam divides by the gradient's size, which blows the noise of tiny gradients up.
    """
    group, settings = build_group(model_dir, minibatches=1, grad_clip=0.5, **keys)
    try:
        metrics = group.learn(AgentTrainingData.build(random_rows(12, 60), settings, np.random.default_rng(0)))
        moments = group.full_state()["optimizer"]["moments"]
        return {name: t.clone() for name, t in moments.items() if name.endswith("exp_avg")}, metrics
    finally:
        group.shutdown()


def largest_difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert set(a) == set(b)
    return max(float((a[name] - b[name]).abs().max() / a[name].abs().max().clamp_min(1e-9)) for name in a)


@pytest.fixture(scope="module")
def local_update(tiny_model_dir: str) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    return updated(tiny_model_dir)


@pytest.mark.parametrize("num_learners", [1, 2])
def test_same_update_with_remote_learners(
    ray_session: None, tiny_model_dir: str, local_update: tuple, num_learners: int
) -> None:
    moments, metrics = updated(tiny_model_dir, num_learners=num_learners)
    assert largest_difference(local_update[0], moments) < 1e-5
    for name in ("actor/pg_loss", "actor/kl_reference", "critic/value_loss", "actor/engine_logprob_gap_mean"):
        assert metrics[name] == pytest.approx(local_update[1][name], rel=1e-4), name


def test_same_update_with_any_micro_batch_size(tiny_model_dir: str, local_update: tuple) -> None:
    moments, _ = updated(tiny_model_dir, tokens_per_microbatch=50)
    assert largest_difference(local_update[0], moments) < 1e-5


def test_another_loss_gives_another_update(tiny_model_dir: str, local_update: tuple) -> None:
    moments, _ = updated(tiny_model_dir, aggregation="seq-mean-token-mean")
    assert largest_difference(local_update[0], moments) > 1e-2


def test_gradients_that_are_not_finite_skip_the_step(tiny_model_dir: str) -> None:
    group, settings = build_group(tiny_model_dir)
    before = {name: tensor.clone() for name, tensor in group.full_state()["rl_module"]["default_policy"].items()}
    rows = random_rows(4, 60)
    rows[0].advantages = rows[0].advantages * np.nan  # type: ignore[operator]
    settings.minibatches = 1
    metrics = group.learn(AgentTrainingData.build(rows, settings, np.random.default_rng(0)))
    after = group.full_state()["rl_module"]["default_policy"]
    assert metrics["actor/skipped_steps"] == 1
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_lora_trains_adapters_only_and_exports_merged_weights(tiny_model_dir: str) -> None:
    group, settings = build_group(tiny_model_dir, lora_rank=4, lr=1e-2)
    plain, _ = build_group(tiny_model_dir)
    names = {name for name, _ in plain._learner.policy.merged_weights()}
    start = dict(group._learner.policy.merged_weights())
    assert set(start) == names
    group.learn(AgentTrainingData.build(random_rows(8, 60), settings, np.random.default_rng(0)))
    merged = dict(group._learner.policy.merged_weights())
    changed = {name for name in names if not torch.allclose(start[name], merged[name])}
    assert changed and all(".q_proj." in n or "_proj." in n for n in changed)
