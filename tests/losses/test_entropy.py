"""Entropy of the token distribution (section 1.6); its bonus: tests/learner/test_rl_modules.py."""

import math

import pytest
import torch

from rl_agents.losses.likelihood import log_distribution, token_entropy


def entropy_of(logits, temperature=1.0):
    return token_entropy(log_distribution(logits, temperature))


def test_reference_example():
    logits = torch.tensor([[0.7, 0.2, 0.1]]).log()
    assert entropy_of(logits).item() == pytest.approx(0.801819, abs=1e-6)


def test_uniform_distribution_and_shift_of_logits():
    assert entropy_of(torch.full((5,), 300.0)).item() == pytest.approx(math.log(5), abs=1e-6)


def test_temperature_flattens():
    logits = torch.tensor([2.0, 0.0, -1.0])
    assert torch.allclose(entropy_of(logits, 2.0), entropy_of(logits / 2.0))
    assert entropy_of(logits, 2.0) > entropy_of(logits)
