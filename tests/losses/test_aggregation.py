"""Loss aggregation by global weights (section 1.3), against the literal formulas, under any split."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents import losses
from rl_agents.losses import weighted_sum

LOSS = [[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]]
MASK = [[1, 1, 1], [1, 0, 0]]
MODES = [
    "token-mean",
    "traj-mean-token-mean",
    "step-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
]


def aggregation_weights(masks, mode, *, trajectories=None, segments=None, constant_length=None):
    """Every row its own trajectory and one step, unless told otherwise."""
    return losses.aggregation_weights(
        masks,
        mode,
        trajectories=range(len(masks)) if trajectories is None else trajectories,
        segments=[np.zeros(len(mask), int) for mask in masks] if segments is None else segments,
        constant_length=constant_length,
    )


def total(losses, weights):
    return sum(float(np.dot(loss, weight)) for loss, weight in zip(losses, weights, strict=True))


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("token-mean", {}, 2.5),
        ("seq-mean-token-sum", {}, 5.0),
        ("seq-mean-token-mean", {}, 3.0),
        ("seq-mean-token-sum-norm", {}, 10 / 6),
        ("seq-mean-token-sum-norm", {"constant_length": 5}, 1.0),
        ("traj-mean-token-mean", {}, 3.0),
        ("traj-mean-token-mean", {"trajectories": [7, 7]}, 2.5),
        ("step-mean", {}, 3.0),
        ("step-mean-in-traj", {}, 3.0),
        ("step-mean-in-traj", {"trajectories": [7, 7]}, 3.0),
    ],
)
@pytest.mark.parametrize("extra_rows", [0, 1, 3])
def test_reference_example_with_and_without_empty_rows(mode, options, expected, extra_rows):
    if "trajectories" in options:
        options = options | {"trajectories": [7, 7] + [8] * extra_rows}
    masks, losses = MASK + [[0, 0, 0]] * extra_rows, LOSS + [[9.0, 9.0, 9.0]] * extra_rows
    weights = aggregation_weights(masks, mode, **options)
    assert total(losses, weights) == pytest.approx(expected, abs=1e-12)


def literal(mode, losses, masks, trajectories):
    """Section 1.3 written down as it stands."""
    sums = [float(np.dot(loss, mask)) for loss, mask in zip(losses, masks, strict=True)]
    counts = [int(sum(mask)) for mask in masks]
    used = [i for i, count in enumerate(counts) if count]
    if not used:
        return 0.0
    if mode == "token-mean":
        return sum(sums) / sum(counts)
    if mode == "seq-mean-token-sum":
        return float(np.mean([sums[i] for i in used]))
    if mode == "seq-mean-token-sum-norm":
        return sum(sums) / max(len(mask) for mask in masks) / len(used)
    if mode == "traj-mean-token-mean":
        owned = [[i for i in used if trajectories[i] == t] for t in {trajectories[i] for i in used}]
        return float(np.mean([sum(sums[i] for i in own) / sum(counts[i] for i in own) for own in owned]))
    means = {i: sums[i] / counts[i] for i in used}
    if mode in ("seq-mean-token-mean", "step-mean"):
        return float(np.mean(list(means.values())))
    members = {t: [means[i] for i in used if trajectories[i] == t] for t in set(trajectories)}
    return float(np.mean([np.mean(values) for values in members.values() if values]))


@st.composite
def batches(draw):
    rows = draw(st.integers(1, 6))
    masks = [draw(st.lists(st.integers(0, 1), min_size=1, max_size=6)) for _ in range(rows)]
    losses = [draw(st.lists(st.floats(-5, 5), min_size=len(m), max_size=len(m))) for m in masks]
    trajectories = draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows))
    return masks, losses, trajectories


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from([*MODES, "step-mean-in-traj"]))
def test_weights_reproduce_the_literal_formula(batch, mode):
    masks, losses, trajectories = batch
    weights = aggregation_weights(masks, mode, trajectories=trajectories)
    assert total(losses, weights) == pytest.approx(literal(mode, losses, masks, trajectories), abs=1e-9)


def test_weighted_sum_drops_garbage_and_keeps_the_dtype():
    loss = torch.tensor([[1.0, float("nan")]])
    value = weighted_sum(loss, torch.tensor([[0.5, 0.0]], dtype=torch.float64))
    assert value.item() == 0.5
    assert value.dtype == torch.float32


@pytest.mark.parametrize("mode", [*MODES, "step-mean-in-traj"])
def test_batch_without_rows_has_no_weights(mode):
    assert aggregation_weights([], mode) == []


def test_errors_name_the_cause():
    with pytest.raises(ValueError, match=r"unknown aggregation 'mean': valid: token-mean, .*step-mean-in-traj$"):
        aggregation_weights(MASK, "mean")
    with pytest.raises(ValueError, match="is longer than argument 1"):
        aggregation_weights(MASK, "step-mean", segments=[[0, 0, 0]])
    with pytest.raises(ValueError, match="negative segment"):
        aggregation_weights(MASK, "step-mean", segments=[[0, -1, 0], [0, -1, -1]])
