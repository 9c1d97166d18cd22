"""Clipped critic loss (section 3)."""

import pytest
import torch

from rl_agents.losses import value


def clipped_value_loss(values, old_values, returns, mask, *, clip=0.5):
    return value.clipped_value_loss(values, old_values, returns, mask, clip=clip)


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


OLD = tensor([[0.5, 0.6, 9.9, 0.8]])
NEW = tensor([[0.45, 1.3, float("nan"), 0.2]])
RETURNS = tensor([[0.788805, 0.891, float("inf"), 1.0]])
MASK = tensor([[1, 1, 0, 1]])


def test_reference_example():
    loss, metrics = clipped_value_loss(NEW, OLD, RETURNS, MASK)
    assert (2 * loss[0]).tolist() == pytest.approx([0.114789, 0.167281, 0.0, 0.64], abs=1e-5)
    assert (loss.sum() / 3).item() == pytest.approx(0.153678, abs=1e-5)
    assert metrics["value_clip_fraction"].item() == 0.0  # every element takes the plain error, the larger one here


def test_clip_is_pessimistic_and_stops_the_gradient():
    values = tensor([[2.0, -2.0]]).requires_grad_()
    loss, metrics = clipped_value_loss(values, tensor([[0.0, 0.0]]), tensor([[2.0, 2.0]]), tensor([[1, 1]]))
    loss.sum().backward()
    assert loss[0].tolist() == pytest.approx([0.5 * 1.5**2, 0.5 * 4.0**2])
    assert values.grad[0].tolist() == [0.0, -4.0]
    assert metrics["value_clip_fraction"].item() == 0.5


def test_without_clip_it_is_half_the_squared_error():
    loss, _ = clipped_value_loss(tensor([[2.0]]), tensor([[0.0]]), tensor([[5.0]]), tensor([[1]]), clip=None)
    assert loss.item() == 4.5


def test_masked_values_get_no_gradient():
    values = NEW.clone().requires_grad_()
    clipped_value_loss(values, OLD, RETURNS, MASK)[0].sum().backward()
    assert values.grad[0, 2].item() == 0.0
    assert torch.isfinite(values.grad).all()


def test_returns_and_old_values_are_constants():
    values, returns = tensor([[1.0]]).requires_grad_(), tensor([[0.0]]).requires_grad_()
    clipped_value_loss(values, values, returns, tensor([[1]]))[0].sum().backward()
    assert returns.grad is None
    assert values.grad.item() == 1.0
