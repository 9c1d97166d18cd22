"""One whole optimizer step, every term on, against a reference written token by token without the package's losses.

What is compared is Adam's first moment after the first step, a tenth of the clipped gradient: it holds the policy
loss, its correction, the KL, the entropy and the critic loss with their signs and weights, the temperature, the
aggregation and the gradient clip. And the metrics of the step, which are sums over several micro-batches.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from learner.learners import build_group, numbered_runs
from learner.references import KEYS, clipped_gradients, differences, distributions
from transformers import AutoModel, AutoModelForCausalLM

from rl_agents.data.samples import Row
from rl_agents.learner.training_data import AgentTrainingData

STEP_KEYS = {"algo": "steppo", "loss_agg_mode": "step-mean", "old_logprobs": "learner"}
TOKEN_KEYS = {"algo": "ppo", "loss_agg_mode": "token-mean", "old_logprobs": "learner"}


def prepared_rows(model: Any) -> list[Row]:
    """Rows whose old, reference and critic numbers lie around those of the model, some beyond every clip."""
    rng, rows = np.random.default_rng(1), []
    for index in range(7):
        length = int(rng.integers(6, 24))
        mask = (rng.random(length) < 0.6).astype(np.float32)
        mask[0], mask[-1] = 0, 1
        ids = rng.integers(0, 60, length).astype(np.int32)
        nothing = np.zeros(length, np.float32)
        row = Row(index, index // 2, ids, mask, nothing, numbered_runs(mask), nothing.copy())
        with torch.no_grad():
            table = distributions(model, row, KEYS["temperature"])
        now = np.r_[0.0, table[torch.arange(length - 1), torch.from_numpy(ids[1:]).long()].numpy()]

        def around(scale: float, now: np.ndarray = now, mask: np.ndarray = mask, size: int = length) -> np.ndarray:
            return ((now + scale * rng.standard_normal(size)) * mask).astype(np.float32)

        row.logprobs, row.old_logprobs, row.reference_logprobs = around(0.4), around(0.4), around(0.5)
        steps = rng.standard_normal(length)
        row.advantages = (steps[np.maximum(row.segments, 0)] * mask).astype(np.float32)
        row.correction = (rng.uniform(0.5, 1.5, length) * mask).astype(np.float32)
        row.values = (0.4 * rng.standard_normal(length) * mask).astype(np.float32)
        row.returns = (2.0 * rng.standard_normal(length) * mask).astype(np.float32)
        rows.append(row)
    return rows


def token_surrogate(row: Row, position: int, logprobs: torch.Tensor) -> torch.Tensor:
    """-min(ρA, clip(ρ)A)."""
    return surrogate(torch.exp(logprobs[position] - float(row.old_logprobs[position])), row.advantages[position])


def step_surrogate(row: Row, position: int, logprobs: torch.Tensor) -> torch.Tensor:
    """The same with ρ = exp(mean over the step's tokens of lp - lp_old)."""
    inside = [j for j in range(len(row)) if row.segments[j] == row.segments[position]]
    drift = sum(logprobs[j] - float(row.old_logprobs[j]) for j in inside) / len(inside)
    return surrogate(torch.exp(drift), row.advantages[position])


def surrogate(ratio: torch.Tensor, advantage: float) -> torch.Tensor:
    advantage = float(advantage)
    clipped = min(max(float(ratio.detach()), 1 - KEYS["clip_low"]), 1 + KEYS["clip_high"])
    gain = (
        ratio * advantage
        if float(ratio.detach()) * advantage <= clipped * advantage
        else ratio.detach() * 0 + clipped * advantage
    )
    return -gain


def token_mean(rows: list[Row], row: Row, position: int) -> float:
    return 1.0 / sum(float(r.mask.sum()) for r in rows)


def step_mean(rows: list[Row], row: Row, position: int) -> float:
    steps = sum(len(set(r.segments[r.mask > 0].tolist())) for r in rows)
    return 1.0 / steps / float((row.segments == row.segments[position]).sum())


def reference_policy_loss(
    model: Any, rows: list[Row], policy: Callable[..., Any], weight: Callable[..., float]
) -> torch.Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for row in rows:
        table = distributions(model, row, KEYS["temperature"])
        own = [torch.zeros(()), *(table[j - 1, int(row.input_ids[j])] for j in range(1, len(row)))]
        for j in np.flatnonzero(row.mask):
            x = own[j] - float(row.reference_logprobs[j])
            entropy = -(table[j - 1].exp() * table[j - 1]).sum()
            term = float(row.correction[j]) * policy(row, j, own)
            term = term + KEYS["kl_coef"] * (torch.exp(-x) + x - 1) - KEYS["entropy_coef"] * entropy
            loss = loss + weight(rows, row, j) * term
    return loss


def reference_metrics(
    model: Any, rows: list[Row], policy: Callable[..., Any], weight: Callable[..., float]
) -> dict[str, float]:
    """What the policy's metrics say, token by token."""
    loss, found = 0.0, []
    for row in rows:
        with torch.no_grad():
            table = distributions(model, row, KEYS["temperature"])
        own = [torch.zeros(()), *(table[j - 1, int(row.input_ids[j])] for j in range(1, len(row)))]
        for j in np.flatnonzero(row.mask):
            loss += weight(rows, row, j) * float(row.correction[j]) * float(policy(row, j, own))
            x = float(own[j]) - float(row.reference_logprobs[j])
            gap = abs(float(own[j]) - float(row.logprobs[j]))
            found.append((np.exp(-x) + x - 1, -float((table[j - 1].exp() * table[j - 1]).sum()), gap))
    kl, entropy, gaps = (np.array(column) for column in zip(*found, strict=True))
    return {
        "actor/pg_loss": loss,
        "actor/kl_reference": kl.mean(),
        "actor/entropy": entropy.mean(),
        "rollout_corr/logprob_diff_mean": gaps.mean(),
        "rollout_corr/logprob_diff_max": gaps.max(),
        "actor/skipped_steps": 0.0,
        "critic/skipped_steps": 0.0,
    }


def reference_values(backbone: Any, head: Any, rows: list[Row]) -> dict[str, float]:
    """What the critic's metrics say, position by position."""
    found = []
    for row in rows:
        with torch.no_grad():
            hidden = backbone(torch.from_numpy(row.input_ids).long()[None]).last_hidden_state[0]
        for j in np.flatnonzero(row.value_mask):
            value, old, target = (float(x) for x in (head(hidden[j - 1]).detach()[0], row.values[j], row.returns[j]))
            bounded = min(max(value, old - 0.5), old + 0.5)
            found.append((value, value - target, abs(bounded - target) > abs(value - target)))
    names = ("critic/value_mean", "critic/value_error", "critic/value_clip_fraction")
    return {name: float(np.mean(column)) for name, column in zip(names, zip(*found, strict=True), strict=True)}


def reference_value_loss(backbone: Any, head: Any, rows: list[Row], weight: Callable[..., float]) -> torch.Tensor:
    loss = torch.zeros((), dtype=torch.float64)
    for row in rows:
        hidden = backbone(torch.from_numpy(row.input_ids).long()[None]).last_hidden_state[0]
        for j in np.flatnonzero(row.value_mask):
            value, old, target = head(hidden[j - 1])[0].double(), float(row.values[j]), float(row.returns[j])
            bounded = torch.clamp(value, old - 0.5, old + 0.5)
            loss = loss + weight(rows, row, j) * 0.5 * torch.maximum((value - target) ** 2, (bounded - target) ** 2)
    return loss


@pytest.mark.parametrize(
    ("keys", "policy", "weight"),
    [(TOKEN_KEYS, token_surrogate, token_mean), (STEP_KEYS, step_surrogate, step_mean)],
    ids=["token", "step"],
)
def test_the_gradient_of_a_whole_step(tiny_model_dir, keys, policy, weight):
    group, settings = build_group(str(tiny_model_dir), **KEYS, **keys, cliprange_value=0.5)
    plain = AutoModelForCausalLM.from_pretrained(tiny_model_dir).eval()
    rows = prepared_rows(plain)
    for row in rows:
        starts = np.r_[False, row.segments[1:] != row.segments[:-1]] & (row.mask > 0)
        row.value_mask = starts.astype(np.float32) if keys["algo"] == "steppo" else row.mask.copy()
    critic_weight = (
        weight if keys["algo"] == "ppo" else lambda rows, row, j: 1.0 / sum(r.value_mask.sum() for r in rows)
    )
    gradients, norm = clipped_gradients(plain, reference_policy_loss(plain, rows, policy, weight))
    expected = {f"lm.{name}": gradient for name, gradient in gradients.items()}
    critic = torch.nn.Module()
    critic.backbone, critic.head = AutoModel.from_pretrained(tiny_model_dir).eval(), torch.nn.Linear(64, 1)
    learner = group._learner.module["critic"]
    with torch.no_grad():  # a head at zero has no gradient to the backbone
        learner.head.weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(2))
        critic.head.load_state_dict(learner.head.state_dict())
    value_loss = reference_value_loss(critic.backbone, critic.head, rows, critic_weight)
    expected_critic, critic_norm = clipped_gradients(critic, value_loss)
    data = AgentTrainingData.build(rows, settings, np.random.default_rng(0))
    metrics = group.learn(data)
    moments = group.full_state()["optimizer"]["moments"]
    assert max(differences(moments, "default_policy", expected)) < 1e-4
    assert max(differences(moments, "critic", expected_critic)) < 1e-4
    reported = reference_metrics(plain, rows, policy, weight) | reference_values(critic.backbone, critic.head, rows)
    reported |= {
        "actor/grad_norm": norm,
        "critic/grad_norm": critic_norm,
        "critic/value_loss": float(value_loss.detach()),
    }
    reported |= {"actor/lr": settings.lr, "critic/lr": settings.critic_lr}
    for name, value in reported.items():
        assert metrics[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name
