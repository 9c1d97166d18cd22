"""Loss components: own weights and denominators, the same update however the rows are split, and the loss by token."""

from typing import Any

import numpy as np
import pytest
import torch
from learner.learners import build_group, random_rows
from learner.references import clipped_gradients, differences, distributions
from transformers import AutoModelForCausalLM

from rl_agents.algorithms import Settings
from rl_agents.data.samples import Row
from rl_agents.learner.training_data import AgentTrainingData, component_weights, folded
from rl_agents.losses import linear_decay

KEYS: dict[str, Any] = {"algo": "grpo", "kl_coef": 0.0, "minibatches": 1, "grad_clip": 0.5}


def row(index: int, mask: list[float], expert: list[float] | None = None, **components: list[float]) -> Row:
    size = len(mask)
    flags = np.array(mask, np.float32)
    segments = np.where(flags + np.array(expert or mask) > 0, 0, -1).astype(np.int32)
    ids, none = np.arange(3, 3 + size, dtype=np.int32), np.zeros(size, np.float32)
    made = Row(index, index, ids, flags, none, segments, none, expert=expert is not None, advantages=flags * 0.5)
    made.components = {name: np.array(weights, np.float32) for name, weights in components.items()}
    if expert is not None:
        made.components["ce"], made.advantages = np.array(expert, np.float32), None
    return made


ROWS = [
    row(0, [0, 1, 1, 0, 1]),
    row(1, [0, 1, 0], aux=[0, 0.25, 0]),
    row(2, [0, 0, 0, 0], expert=[0, 0.5, 0.5, 0.5]),
    row(3, [0, 0], expert=[0, 2.0]),
]


@pytest.mark.parametrize(
    ("mode", "rl", "ce", "aux"),
    [
        # 4 sampled tokens; 4 demonstrated ones, of which three weigh a half and one 2; one token with 1/4.
        ("token-mean", ([0, 1 / 4, 1 / 4, 0, 1 / 4], [0, 1 / 4, 0]), ([0, 1 / 8, 1 / 8, 1 / 8], [0, 1 / 2]), 1 / 4),
        # Two rows of rollouts and two of experts: 1/2 for each, over its own tokens.
        (
            "seq-mean-token-mean",
            ([0, 1 / 6, 1 / 6, 0, 1 / 6], [0, 1 / 2, 0]),
            ([0, 1 / 12, 1 / 12, 1 / 12], [0, 1]),
            1 / 4,
        ),
        # The longest row is the component's own: 5, 4 and 3 tokens.
        (
            "seq-mean-token-sum-norm",
            ([0, 1 / 10, 1 / 10, 0, 1 / 10], [0, 1 / 10, 0]),
            ([0, 1 / 16, 1 / 16, 1 / 16], [0, 1 / 4]),
            1 / 12,
        ),
    ],
)
def test_every_component_has_its_own_denominator(mode: str, rl: Any, ce: Any, aux: float) -> None:
    weights = component_weights(ROWS, Settings.from_dict({"loss_agg_mode": mode}))
    for name, expected in {"rl": (*rl, [0] * 4, [0] * 2), "ce": ([0] * 5, [0] * 3, *ce)}.items():
        for found, one in zip(weights[name], expected, strict=True):
            assert found == pytest.approx(np.array(one, float), rel=1e-6), name
    assert weights["aux"][1] == pytest.approx([0, aux, 0]) and not weights["aux"][0].any()


def test_expert_rows_are_spread_over_the_steps_and_survive_folding() -> None:
    rows = [row(i, [0, 1, 1]) for i in range(8)] + [row(8 + i, [0, 0], expert=[0, 1]) for i in range(4)]
    settings = Settings.from_dict({"algo": "grpo", "minibatches": 4})
    data = AgentTrainingData.build(rows, settings, np.random.default_rng(0))
    assert [sum(data.rows[i].expert for i in m.rows) for m in data.minibatches] == [1] * 4
    plain = AgentTrainingData.build(rows[:8], settings, np.random.default_rng(0))
    own = [[i for i in m.rows if not data.rows[i].expert] for m in data.minibatches]
    assert own == [m.rows for m in plain.minibatches], "experts do not move rollouts to other steps"
    for each in rows[:8]:
        each.advantages = each.mask * 0
    chosen, weights = folded(rows, range(12), component_weights(rows, settings), keep_silent=False)
    assert chosen == [8, 9, 10, 11] and all(w.sum() == pytest.approx(0.25) for w in weights["ce"])


@pytest.mark.parametrize(("share", "done", "expected"), [(0, 0.9, 2.0), (0.5, 0.25, 1.0), (0.5, 0.5, 0), (0.5, 1, 0)])
def test_a_coefficient_falls_linearly_to_zero(share: float, done: float, expected: float) -> None:
    assert linear_decay(2.0, share, done) == expected


def with_experts(rows: list[Row]) -> list[Row]:
    """Every third row becomes one of an expert, with weights 1/2 and 1."""
    for each in rows[::3]:
        each.expert, each.components = True, {"ce": each.mask * np.float32(0.5 + 0.5 * (each.trajectory % 2))}
        each.mask = each.mask * 0
        each.advantages = each.values = each.returns = each.reference_logprobs = None
    return rows


def test_the_gradient_of_a_step_with_two_components(tiny_model_dir: Any) -> None:
    """Against sums that are written token by token: ρ = 1, so that the surrogate's gradient is -A·∇lp."""
    group, settings = build_group(str(tiny_model_dir), **KEYS)
    plain, rows = AutoModelForCausalLM.from_pretrained(tiny_model_dir).eval(), with_experts(random_rows(9, 60))
    own, experts = ([r for r in rows if r.expert == kind] for kind in (False, True))
    sampled, shown = sum(r.mask.sum() for r in own), sum((r.components["ce"] > 0).sum() for r in experts)
    rl = ce = torch.zeros((), dtype=torch.float64)
    for each in rows:
        table = distributions(plain, each, 1.0)
        for j in np.flatnonzero(each.scored):
            lp = table[j - 1, int(each.input_ids[j])]
            if each.expert:
                ce = ce - float(each.components["ce"][j]) * lp / shown
            else:
                each.logprobs[j] = float(lp.detach())
                rl = rl - float(each.advantages[j]) * torch.exp(lp - lp.detach()) / sampled  # type: ignore[index]
    expected, _ = clipped_gradients(plain, rl + ce)
    metrics = group.learn(AgentTrainingData.build(rows, settings, np.random.default_rng(0)))
    moments = group.full_state()["optimizer"]["moments"]
    assert max(differences(moments, "default_policy", {f"lm.{name}": g for name, g in expected.items()})) < 1e-4
    assert metrics["actor/ce_loss"] == pytest.approx(float(ce.detach()), rel=1e-4)
    assert metrics["actor/pg_loss"] == pytest.approx(float(rl.detach()), rel=1e-4, abs=1e-7)
    assert "expert/entropy" not in metrics


def test_the_losses_by_token_add_up_to_the_loss(tiny_model_dir: Any) -> None:
    group, settings = build_group(str(tiny_model_dir), **KEYS | {"minibatches": 2, "epochs": 2})
    rows = with_experts(random_rows(9, 60))
    data = AgentTrainingData.build(rows, settings, np.random.default_rng(0))
    data.by_token, data.minibatches = True, data.minibatches[:2]
    metrics, found = group.learn(data), group.token_losses
    totals = {name: sum(sum(of.get(name, ())) for of in found.values()) for name in ("rl", "ce")}
    assert totals["rl"] == pytest.approx(2 * metrics["actor/pg_loss"], rel=1e-4)
    assert totals["ce"] == pytest.approx(2 * metrics["actor/ce_loss"], rel=1e-4)
    for (trajectory, step), parts in found.items():
        assert list(parts) == ["ce" if rows[trajectory].expert else "rl"]
        assert [len(values) for values in parts.values()] == [int((rows[trajectory].segments == step).sum())]
    assert len(found) == sum(row.segments.max() + 1 for row in rows)
