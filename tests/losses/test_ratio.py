"""Importance ratios at token, step and sequence level (sections 1.4, 8 and 12 of the algorithm reference)."""

import math

import pytest
import torch

from rl_agents.losses.masks import segment_mean
from rl_agents.losses.policy import log_ratio


def tensor(values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype)


def importance_ratio(logprobs, old_logprobs, mask, **options):
    return log_ratio(logprobs, old_logprobs, mask, **options).exp()


def ratio_of(differences, mask=None, **options):
    lp = tensor(differences)
    mask = torch.ones_like(lp) if mask is None else tensor(mask)
    return importance_ratio(lp, torch.zeros_like(lp), mask, **options)


def test_token_ratio_is_the_exponential_of_the_difference():
    assert torch.allclose(ratio_of([[0.5, -0.1]]), tensor([[math.exp(0.5), math.exp(-0.1)]]))


def test_sequence_ratio_is_the_geometric_mean():
    assert ratio_of([[0.1, -0.05, 0.25]], level="sequence")[0, 0].item() == pytest.approx(1.105171, abs=1e-6)
    assert math.exp(0.1 - 0.05 + 0.25) == pytest.approx(1.349859, abs=1e-6)  # the product, which it is not


def test_step_ratio_of_the_reference_example():
    ratio = ratio_of([[0.02, -0.01, 0.03, 0.0]], level="step", segments=torch.zeros(1, 4, dtype=torch.int64))
    assert ratio[0, 3].item() == pytest.approx(1.010050, abs=1e-6)


def test_step_ratio_on_a_merged_row_equals_sequence_ratio_on_step_rows():
    merged = ratio_of(
        [[0.3, 0.1, 9.0, -0.2, 0.4, 0.1]],
        mask=[[1, 1, 0, 1, 1, 1]],
        level="step",
        segments=torch.tensor([[0, 0, -1, 1, 1, 1]]),
    )
    first = ratio_of([[0.3, 0.1]], level="sequence")
    second = ratio_of([[-0.2, 0.4, 0.1]], level="sequence")
    assert torch.allclose(merged, torch.cat([first, tensor([[1.0]]), second], dim=1))


def test_segments_of_different_rows_do_not_mix():
    x = tensor([[1.0, 2.0], [10.0, 20.0]])
    mean = segment_mean(x, torch.ones_like(x), torch.tensor([[0, 1], [0, 0]]))
    assert mean.tolist() == [[1.0, 2.0], [15.0, 15.0]]


def test_padding_does_not_enter_the_geometric_mean():
    padded = ratio_of([[0.1, -0.05, 0.25, 7.0]], mask=[[1, 1, 1, 0]], level="sequence")
    assert padded[0, :3].tolist() == pytest.approx([math.exp(0.1)] * 3)


def test_zero_length_row_has_ratio_one_and_no_gradient():
    lp = tensor([[3.0, 4.0]]).requires_grad_()
    ratio = importance_ratio(lp, torch.zeros(1, 2), torch.zeros(1, 2), level="sequence")
    ratio.sum().backward()
    assert ratio.tolist() == [[1.0, 1.0]]
    assert lp.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("level", ["token", "step", "sequence"])
def test_garbage_on_masked_tokens_reaches_neither_value_nor_gradient(level):
    lp = tensor([[0.1, float("nan"), float("inf")]]).requires_grad_()
    options = {"segments": torch.tensor([[0, -1, -1]])} if level == "step" else {}
    ratio = importance_ratio(lp, torch.zeros(1, 3), tensor([[1, 0, 0]]), level=level, **options)
    ratio.sum().backward()
    assert ratio[0].tolist() == pytest.approx([math.exp(0.1), 1.0, 1.0])
    assert lp.grad[0].tolist() == pytest.approx([math.exp(0.1), 0.0, 0.0])


def test_large_differences_do_not_overflow_in_float32():
    lp = tensor([[400.0, -400.0]], torch.float32)
    ratio = importance_ratio(lp, torch.zeros(1, 2), torch.ones(1, 2))
    assert ratio[0].tolist() == pytest.approx([math.exp(20), math.exp(-20)], rel=1e-5)


def test_gradient_of_the_sequence_ratio_is_shared_by_its_tokens():
    lp = tensor([[0.1, -0.05, 0.25]]).requires_grad_()
    importance_ratio(lp, torch.zeros(1, 3), torch.ones(1, 3), level="sequence")[0, 0].backward()
    assert lp.grad[0].tolist() == pytest.approx([math.exp(0.1) / 3] * 3)


def test_sampled_token_without_a_segment_is_an_error():
    with pytest.raises(ValueError, match="negative segment"):
        ratio_of([[0.1, 0.2]], level="step", segments=torch.tensor([[0, -1]]))
