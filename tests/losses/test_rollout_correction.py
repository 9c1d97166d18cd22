"""Rollout/trainer mismatch correction (section 1.7)."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_agents import losses as rc
from rl_agents.losses import aggregation_weights


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


DIFFERENCES = tensor([[0.2, 1.0, -0.3], [0.01, -0.02, float("nan")]])
ROLLOUT = tensor([[-1.0, -2.0, -1.5], [-0.5, -0.25, 0.0]])
MASK = tensor([[1, 1, 1], [1, 1, 0]])


def step_tis(old, rollout, mask, **options):
    """All of a row is one step."""
    return rc.step_tis(old, rollout, mask, torch.where(mask > 0, 0, -1), **options)


METHODS = [rc.token_tis, step_tis, rc.sequence_tis, rc.sequence_mis, rc.geometric_rejection, rc.icepop]


def rows(correction):
    return correction.weights[0].tolist(), correction.weights[1].tolist()


def apply(method, **options):
    return method(ROLLOUT + DIFFERENCES, ROLLOUT, MASK, **options)


def token_mean(mask):
    masks = list(mask.numpy())
    rows = {"trajectories": range(len(masks)), "segments": masks, "constant_length": None}
    return aggregation_weights(masks, "token-mean", **rows)


def test_sequence_mis_rejects_the_first_row_and_shrinks_the_denominator():
    correction = apply(rc.sequence_mis)
    assert correction.weights[0].tolist() == [0.0, 0.0, 0.0]
    assert correction.weights[1].tolist() == pytest.approx([0.990050, 0.990050, 0.0], abs=1e-6)
    assert correction.mask.tolist() == [[0, 0, 0], [1, 1, 0]]
    assert token_mean(correction.mask)[1].tolist() == [0.5, 0.5, 0.0]


def test_bounds_apply_to_r_itself():
    # Products 2.46 and 0.99; 1/r = 0.41 would pass where r must not, and the other way round.
    assert apply(rc.sequence_mis, bounds=(0.9, 3.0)).mask.sum() == 5
    assert apply(rc.sequence_mis, bounds=(0.3, 2.0)).mask.sum() == 2


def test_geometric_rejection():
    assert apply(rc.geometric_rejection).mask.sum() == 0
    assert apply(rc.geometric_rejection, bounds=(0.995, 1.001)).mask.tolist() == [[0, 0, 0], [1, 1, 0]]
    assert apply(rc.geometric_rejection, bounds=(0.999, 1.34986)).mask.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert apply(rc.geometric_rejection, bounds=(0.999, 1.34985)).mask.sum() == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_policy_is_a_no_op_bit_for_bit(method, dtype):
    lp = torch.randn(3, 7, generator=torch.Generator().manual_seed(1)).to(dtype)
    mask = torch.ones(3, 7)
    mask[2, 3:] = 0
    correction = method(lp, lp.clone(), mask)
    assert torch.equal(correction.weights, mask.to(dtype))
    assert torch.equal(correction.mask, mask.to(dtype))


@pytest.mark.parametrize("method", METHODS)
def test_weights_carry_no_gradient_and_padding_is_zero(method):
    old = (ROLLOUT + DIFFERENCES).requires_grad_()
    correction = method(old, ROLLOUT, MASK)
    assert not correction.weights.requires_grad
    assert correction.weights[1, 2] == 0
    assert torch.isfinite(correction.weights).all()


def test_product_is_taken_in_log_space_and_in_double_precision():
    count = 4096
    old = torch.full((1, count), -1.0) + torch.where(torch.arange(count) % 2 == 0, 0.4, -0.4)
    old[0, 0] += 0.1
    weights = rc.sequence_tis(old, torch.full((1, count), -1.0), torch.ones(1, count)).weights
    assert weights[0, 0].item() == pytest.approx(math.exp(0.1), abs=2e-4)


def one_row(method, *differences, **options):
    old, mask = tensor([list(differences)]), torch.ones(1, len(differences), dtype=torch.float64)
    return method(old, torch.zeros_like(old), mask, **options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (rc.token_tis, {"cap": 1e12}),
        (step_tis, {"cap": 1e12}),
        (rc.sequence_tis, {"cap": 1e12}),
        (rc.sequence_mis, {"cap": 1e12, "bounds": (0.0, 1e12)}),
        (rc.icepop, {"bounds": (0.0, 1e12)}),
    ],
)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_ratios_are_clamped_at_twenty_nats(method, options, sign):
    assert one_row(method, sign * 30.0, **options).weights.item() == pytest.approx(math.exp(sign * 20.0), rel=1e-12)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_geometric_means_are_clamped_at_twenty_nats(sign):
    edge = math.exp(sign * 20.0)
    assert one_row(rc.geometric_rejection, sign * 30.0, bounds=(edge * 0.999, edge * 1.001)).mask.item() == 1.0
    assert one_row(rc.geometric_rejection, sign * 30.0, bounds=(edge * 1.001, edge * 1.002)).mask.item() == 0.0


def test_bounds_belong_to_the_range():
    assert one_row(rc.icepop, 0.0, bounds=(1.0, 2.0)).weights.item() == 1.0
    assert one_row(rc.icepop, 0.0, bounds=(0.5, 1.0)).weights.item() == 1.0


@pytest.mark.parametrize(
    ("method", "expected", "left"),
    [
        (rc.token_tis, [0.49, 0.51, 1.9, 2.0, 2.0, 2.0], 6), (step_tis, [0.49, 0.51, 1.9, 2.0, 2.0, 2.0], 6),
        (rc.sequence_tis, [0.49, 0.51, 1.9, 2.0, 2.0, 2.0], 6), (rc.sequence_mis, [0.0, 0.51, 1.9, 0.0, 0.0, 0.0], 2),
        (rc.icepop, [0.0, 0.51, 1.9, 2.1, 4.9, 0.0], 6),
    ],
)  # fmt: skip
def test_constants_of_the_methods_and_what_stays_in_the_mask(method, expected, left):
    """Ratios on both sides of each constant; IcePop's zeros stay in the denominator, Seq-MIS's leave it."""
    found = [one_row(method, math.log(ratio)) for ratio in (0.49, 0.51, 1.9, 2.1, 4.9, 5.1)]
    assert [correction.weights.item() for correction in found] == pytest.approx(expected)
    assert sum(correction.mask.item() for correction in found) == left


def test_effective_share_of_the_ratios():
    assert rc.effective_share(np.zeros(5)) == rc.effective_share(np.full(5, -700.0)) == 1.0
    assert rc.effective_share(np.log([1.0, 3.0])) == pytest.approx(16 / 20)
    assert rc.effective_share(np.array([800.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25), "one of four carries all"
    assert rc.effective_share(np.zeros(0)) == 1.0


def steps_of(method, differences, segments, **options):
    old = tensor([differences])
    mask = (torch.tensor([segments]) >= 0).double()
    return method(old, torch.zeros_like(old), mask, segments=torch.tensor([segments]), **options).weights[0].tolist()


def test_a_step_that_returns_where_others_lie_between_is_one_step():
    found = steps_of(rc.step_tis, [0.1, 0.2, 0.3], [0, 1, 0])
    assert found == pytest.approx([math.exp(0.4), math.exp(0.2), math.exp(0.4)])


def test_a_sampled_token_without_a_step_is_an_error():
    with pytest.raises(ValueError, match="negative segment"):
        rc.step_tis(ROLLOUT, ROLLOUT, MASK, torch.full((2, 3), -1))


@given(
    st.lists(st.lists(st.floats(-40, 40, width=32), min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from([1.0, 2.0, 1e12]),
)
def test_one_step_per_row_is_the_sequence_and_one_token_per_step_is_the_token(gaps, cap):
    longest = max(map(len, gaps))
    old = torch.zeros(len(gaps), longest)
    mask = torch.zeros(len(gaps), longest)
    for number, row in enumerate(gaps):
        old[number, : len(row)], mask[number, : len(row)] = torch.tensor(row), 1.0
    rollout, nowhere = torch.zeros_like(old), torch.where(mask > 0, 0, -1)
    counted = torch.where(mask > 0, torch.arange(longest), -1)
    row_weight = rc.sequence_tis(old, rollout, mask, cap=cap).weights
    assert torch.allclose(rc.step_tis(old, rollout, mask, nowhere, cap=cap).weights, row_weight, rtol=1e-6)
    token_weight = rc.token_tis(old, rollout, mask, cap=cap).weights
    assert torch.allclose(rc.step_tis(old, rollout, mask, counted, cap=cap).weights, token_weight, rtol=1e-5)
