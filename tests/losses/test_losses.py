"""Likelihood (section 2), entropy (1.6), KL (1.5) and critic loss (3) of the algorithm reference.

The shift by one, the temperature and the entropy bonus: tests/learner/test_whole_step.py; KL in the reward:
tests/trainer/test_advantage_pipeline.py.
"""

import math

import numpy as np
import pytest
import torch

from rl_agents import losses
from rl_agents.losses import aggregation_weights, kl_penalty, log_distribution, masked, token_entropy, weighted_sum


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


PROBABILITIES = torch.tensor([[0.5, 0.25, 0.8], [0.9, 1.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("masks", "mode", "expected"),
    [
        ([[1, 1, 1], [0, 0, 0]], "token-mean", 0.767528),
        ([[1, 1, 1], [1, 0, 0]], "token-mean", 0.601986),
        ([[1, 1, 1], [1, 0, 0]], "seq-mean-token-mean", 0.436444),
    ],
)
def test_sft_examples_of_the_reference(masks, mode, expected):
    rows = {"trajectories": [0, 1], "segments": masks, "constant_length": None}
    weights = torch.tensor(np.stack(aggregation_weights(masks, mode, **rows)))
    loss = masked(-PROBABILITIES.log(), torch.tensor(masks))
    assert weighted_sum(loss, weights).item() == pytest.approx(expected, abs=1e-6)


def test_tokens_of_tools_and_prompts_are_masked():
    lp = torch.tensor([[-1.0, float("-inf"), -2.0]]).requires_grad_()
    loss = masked(-lp, torch.tensor([[1, 0, 1]]))
    loss.sum().backward()
    assert loss.tolist() == [[1.0, 0.0, 2.0]]
    assert lp.grad.tolist() == [[-1.0, 0.0, -1.0]]


def entropy_of(logits, temperature=1.0):
    return token_entropy(log_distribution(logits, temperature))


def test_entropy_of_the_reference():
    logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
    assert entropy_of(logits).item() == pytest.approx(0.801819, abs=1e-6)


def estimate(lp, reference, kind):
    return kl_penalty(tensor([[lp]]), tensor([[reference]]), tensor([[1.0]]), kind).item()


@pytest.mark.parametrize(
    ("lp", "reference", "expected"),
    [
        (-1.0, -1.3, {"k1": 0.3, "abs": 0.3, "k2": 0.045, "k3": 0.040818, "k3+": 0.040818}),
        (-2.0, -1.0, {"k1": -1.0, "abs": 1.0, "k2": 0.5, "k3": 0.718282, "k3+": 0.718282}),
        (-1.5, -1.5, {"k1": 0.0, "abs": 0.0, "k2": 0.0, "k3": 0.0, "k3+": 0.0}),
    ],
)
def test_values_of_the_estimators(lp, reference, expected):
    for kind, value in expected.items():
        assert estimate(lp, reference, kind) == pytest.approx(value, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "gradient"), [("k1", 1.0), ("abs", -1.0), ("k2", -1.0), ("k3", 1 - 2.718281828), ("k3+", -1.0)]
)
def test_gradients_of_the_estimators(kind, gradient):
    lp = tensor([[-2.0]]).requires_grad_()
    kl_penalty(lp, tensor([[-1.0]]), tensor([[1.0]]), kind).sum().backward()
    assert lp.grad.item() == pytest.approx(gradient, abs=1e-8)


@pytest.mark.parametrize(
    ("difference", "value", "gradient"),
    [
        (-3.0, 10.0, 1 - math.exp(3)),  # k3 is 16.09; the gradient was 0 from -2.61 on
        (-2.0, math.exp(2) - 3, 1 - math.exp(2)),
        (12.0, 10.0, 1 - math.exp(-12)),
        (-100.0, 10.0, 1 - math.exp(20)),
        (100.0, 10.0, 1 - math.exp(-20)),
    ],
)
def test_k3_is_bounded_in_its_value_and_pulls_back_from_far_away(difference, value, gradient):
    lp = tensor([[difference]]).requires_grad_()
    found = kl_penalty(lp, tensor([[0.0]]), tensor([[1.0]]), "k3").sum()
    found.backward()
    assert found.item() == pytest.approx(value)
    assert lp.grad.item() == pytest.approx(gradient)


def test_masked_tokens_give_no_kl_and_no_gradient():
    lp = tensor([[-1.0, float("nan")]]).requires_grad_()
    penalty = kl_penalty(lp, tensor([[-1.3, 0.0]]), tensor([[1.0, 0.0]]), "k3")
    penalty.sum().backward()
    assert penalty[0, 1].item() == 0.0
    assert lp.grad[0, 1].item() == 0.0


def test_unknown_estimator_is_an_error():
    with pytest.raises(ValueError, match="unknown KL estimator 'k4'"):
        estimate(0.0, 0.0, "k4")


def value_loss(values, old_values, returns, mask, *, clip=0.5):
    return losses.clipped_value_loss(values, old_values, returns, mask, clip=clip)


OLD = tensor([[0.5, 0.6, 9.9, 0.8]])
NEW = tensor([[0.45, 1.3, float("nan"), 0.2]])
RETURNS = tensor([[0.788805, 0.891, float("inf"), 1.0]])
MASK = tensor([[1, 1, 0, 1]])


def test_value_loss_of_the_reference():
    loss, metrics = value_loss(NEW, OLD, RETURNS, MASK)
    assert (2 * loss[0]).tolist() == pytest.approx([0.114789, 0.167281, 0.0, 0.64], abs=1e-5)
    assert (loss.sum() / 3).item() == pytest.approx(0.153678, abs=1e-5)
    assert metrics["value_clip_fraction"].item() == 0.0  # every element takes the plain error, the larger one here


def test_clip_is_pessimistic_and_stops_the_gradient():
    values = tensor([[2.0, -2.0]]).requires_grad_()
    loss, metrics = value_loss(values, tensor([[0.0, 0.0]]), tensor([[2.0, 2.0]]), tensor([[1, 1]]))
    loss.sum().backward()
    assert loss[0].tolist() == pytest.approx([0.5 * 1.5**2, 0.5 * 4.0**2])
    assert values.grad[0].tolist() == [0.0, -4.0]
    assert metrics["value_clip_fraction"].item() == 0.5


def test_without_clip_it_is_half_the_squared_error():
    loss, _ = value_loss(tensor([[2.0]]), tensor([[0.0]]), tensor([[5.0]]), tensor([[1]]), clip=None)
    assert loss.item() == 4.5


def test_masked_values_of_the_critic_get_no_gradient():
    values = NEW.clone().requires_grad_()
    value_loss(values, OLD, RETURNS, MASK)[0].sum().backward()
    assert values.grad[0, 2].item() == 0.0
    assert torch.isfinite(values.grad).all()


def test_returns_and_old_values_are_constants():
    values, returns = tensor([[1.0]]).requires_grad_(), tensor([[0.0]]).requires_grad_()
    value_loss(values, values, returns, tensor([[1]]))[0].sum().backward()
    assert returns.grad is None
    assert values.grad.item() == 1.0
