"""Entropy of the token distribution and the sign of its bonus (section 1.6)."""

import math

import pytest
import torch

from rl_agents.objectives.entropy import entropy_loss, token_entropy


def test_reference_example():
    logits = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    assert token_entropy(logits).item() == pytest.approx(0.801819, abs=1e-6)


def test_uniform_distribution_and_shift_of_logits():
    assert token_entropy(torch.full((5,), 300.0)).item() == pytest.approx(math.log(5), abs=1e-6)


def test_temperature_flattens():
    logits = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    assert torch.allclose(token_entropy(logits, temperature=2.0), token_entropy(logits / 2.0))
    assert token_entropy(logits, temperature=2.0) > token_entropy(logits)
    with pytest.raises(ValueError, match="positive"):
        token_entropy(logits, temperature=0.0)


def test_forbidden_tokens_have_probability_zero():
    logits = torch.tensor([0.0, 0.0, float("-inf")], dtype=torch.float64).requires_grad_()
    entropy = token_entropy(logits)
    entropy.backward()
    assert entropy.item() == pytest.approx(math.log(2))
    assert torch.isfinite(logits.grad).all()


def test_a_descent_step_raises_entropy():
    logits = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64).requires_grad_()
    entropy_loss(token_entropy(logits), torch.ones(1), 0.1).sum().backward()
    assert token_entropy(logits - logits.grad) > token_entropy(logits)


def test_mask_and_default_coefficient():
    entropy = torch.tensor([[1.0, float("nan")]])
    assert entropy_loss(entropy, torch.tensor([[1, 0]]), 0.5).tolist() == [[-0.5, 0.0]]
    assert entropy_loss(entropy, torch.tensor([[1, 0]])).abs().sum() == 0
