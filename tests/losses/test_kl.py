"""KL estimators and the adaptive coefficient (section 1.5); KL in the reward:
tests/trainer/test_advantage_pipeline.py."""

import math

import pytest
import torch

from rl_agents.losses.kl import kl_penalty
from rl_agents.losses.policy import ppo_loss


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


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


def distribution(theta):
    return torch.softmax(theta, dim=0)


def test_k1_and_k3_are_unbiased_values_and_k2_has_the_gradient_of_the_kl():
    theta, reference = tensor([0.3, -0.5, 1.0]).requires_grad_(), torch.log_softmax(tensor([0.0, 0.4, 0.2]), dim=0)
    p = distribution(theta)
    kl = (p * (p.log() - reference)).sum()
    (true_gradient,) = torch.autograd.grad(kl, theta)
    weights = p.detach()

    def expectation(kind):
        lp = torch.log_softmax(theta, dim=0)
        return (weights * kl_penalty(lp[None], reference[None], torch.ones(1, 3), kind)[0]).sum()

    assert expectation("k1").item() == pytest.approx(kl.item(), abs=1e-12)
    assert expectation("k3").item() == pytest.approx(kl.item(), abs=1e-12)
    assert abs(expectation("k2").item() - kl.item()) > 1e-3
    for kind, matches in (("k2", True), ("k3+", True), ("k3", False), ("k1", False)):
        (gradient,) = torch.autograd.grad(expectation(kind), theta)
        assert torch.allclose(gradient, true_gradient, atol=1e-10) is matches
    (k1_gradient,) = torch.autograd.grad(expectation("k1"), theta)
    assert torch.allclose(k1_gradient, torch.zeros(3, dtype=torch.float64), atol=1e-12)


def test_k3_is_bounded_and_finite_far_from_the_reference():
    assert estimate(-100.0, 0.0, "k3") == 10.0
    assert estimate(100.0, 0.0, "k3") == 10.0
    lp = tensor([[-100.0]]).requires_grad_()
    kl_penalty(lp, tensor([[0.0]]), tensor([[1.0]]), "k3").sum().backward()
    assert lp.grad.item() == 0.0


def test_masked_tokens_give_no_kl_and_no_gradient():
    lp = tensor([[-1.0, float("nan")]]).requires_grad_()
    penalty = kl_penalty(lp, tensor([[-1.3, 0.0]]), tensor([[1.0, 0.0]]), "k3")
    penalty.sum().backward()
    assert penalty[0, 1].item() == 0.0
    assert lp.grad[0, 1].item() == 0.0


def test_group_without_signal_still_feels_the_reference():
    lp = tensor([[-1.0, -0.5]]).requires_grad_()
    policy, _ = ppo_loss(lp, lp.detach(), tensor([[0.0, 0.0]]), tensor([[1, 1]]), clip_low=0.2, clip_high=0.2)
    (policy.sum() + 0.001 * kl_penalty(lp, tensor([[-1.5, -1.5]]), tensor([[1, 1]]), "k3").sum()).backward()
    assert lp.grad[0].tolist() == pytest.approx([0.001 * (1 - math.exp(-0.5)), 0.001 * (1 - math.exp(-1.0))])


def test_unknown_estimator_is_an_error():
    with pytest.raises(ValueError, match="unknown KL estimator 'k4'"):
        estimate(0.0, 0.0, "k4")
