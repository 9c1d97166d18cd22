"""Masked and grouped statistics (section 1.2) and their switches."""

import numpy as np
import pytest

from rl_agents.credit.statistics import (
    counted_units,
    group_normalise,
    group_statistics,
    masked_mean,
    masked_var,
    masked_whiten,
    trajectory_order,
)

NAN = float("nan")


def test_masked_mean_and_variance_ignore_what_is_masked():
    assert masked_mean([1.0, 3.0, NAN], [1, 1, 0]) == pytest.approx(2.0, abs=1e-7)
    assert masked_var([1.0, 3.0, NAN], [1, 1, 0]) == pytest.approx(2.0, abs=1e-7)
    assert masked_var([1.0, 3.0, NAN], [1, 1, 0], ddof=0) == pytest.approx(1.0, abs=1e-7)
    assert masked_mean([NAN], [0]) == 0.0


@pytest.mark.parametrize("mask", [[0, 0], [1, 0]])
def test_variance_of_fewer_than_two_values_is_an_error(mask):
    with pytest.raises(ValueError, match=f"got {sum(mask)}"):
        masked_var([1.0, 2.0], mask)
    with pytest.raises(ValueError, match=f"got {sum(mask)}"):
        masked_whiten([1.0, 2.0], mask)


def test_whitening_of_the_gae_example():
    whitened = masked_whiten([0.288805, 0.291, NAN, 0.2], [1, 1, 0, 1])
    assert whitened == pytest.approx([0.556081, 0.598360, 0.0, -1.154440], abs=1e-4)  # inputs have six digits


def test_whitening_of_equal_values_is_zero():
    assert masked_whiten([2.0, 2.0, 2.0], [1, 1, 1]) == pytest.approx([0.0] * 3, abs=1e-3)


def test_floors_of_whitening():
    x = [1e-6, -1e-6]
    assert masked_whiten(x, [1, 1], ddof=0, floor="clamp")[0] == pytest.approx(1e-2)
    assert masked_whiten([1.0, -1.0], [1, 1], ddof=0, floor="clamp")[0] == pytest.approx(1.0)
    assert masked_whiten(x, [1, 1], ddof=0)[0] == pytest.approx(1e-6 / np.sqrt(1e-12 + 1e-8))
    assert masked_whiten(x, [1, 1], ddof=0, floor="add_to_std")[0] == pytest.approx(1e-6 / (1e-6 + 1e-8))


def test_group_statistics_with_interleaved_groups_and_both_deviations():
    stats = group_statistics([1.0, 10.0, 0.0, 20.0], [5, 2, 5, 2])
    assert stats.mean.tolist() == [0.5, 15.0, 0.5, 15.0]
    assert stats.std == pytest.approx([np.sqrt(0.5), np.sqrt(50.0)] * 2)
    assert group_statistics([1.0, 0.0], [0, 0], ddof=0).std.tolist() == [0.5, 0.5]
    assert stats.size.tolist() == [2, 2, 2, 2]


def test_noise_in_equal_values_is_not_amplified():
    noisy = [0.1 + 0.2, 0.3, 0.3 + 1e-8]
    assert group_normalise(noisy, [0, 0, 0]).tolist() == [0.0, 0.0, 0.0]
    assert np.abs(group_normalise(noisy, [0, 0, 0], tolerance=0.0)).max() > 1e-3


@pytest.mark.parametrize(("singleton", "expected"), [("raw", 7.0), ("zero", 0.0)])
@pytest.mark.parametrize("norm", ["mean", "mean_std"])
def test_both_singleton_conventions(singleton, expected, norm):
    assert group_normalise([7.0], [3], singleton=singleton, norm=norm).tolist() == [expected]


def test_unknown_switches_are_errors():
    with pytest.raises(ValueError, match="unknown norm 'std'"):
        group_normalise([1.0], [0], norm="std")
    with pytest.raises(ValueError, match="unknown statistics 'rows'"):
        counted_units([0], [0], "rows")


def test_units_count_trajectories_or_rows_and_skip_padding():
    groups, trajectories, valid = [0, 0, 0, 1, 1], [0, 0, 1, 0, 0], [1, 1, 1, 1, 0]
    units = counted_units(groups, trajectories, "trajectories", valid)
    assert units.first.size == 3  # trajectory 0 of group 1 is not trajectory 0 of group 0
    assert units.of_row[0] == units.of_row[1] != units.of_row[2]
    assert units.of_row[4] == -1
    assert counted_units(groups, trajectories, "step_rows", valid).first.tolist() == [0, 1, 2, 3]


def test_trajectory_order_sorts_steps_and_skips_padding():
    order = trajectory_order([7, 3, 7, 3, 9], [1, 0, 0, 1, 5], [1, 1, 1, 1, 0])
    assert [part.tolist() for part in order] == [[1, 3], [2, 0]]
    assert trajectory_order([], []) == []


@pytest.mark.parametrize("steps", [[0, 2], [1, 2], [0, 0]])
def test_gap_in_step_indices_is_an_error(steps):
    with pytest.raises(ValueError, match=r"trajectory 4: step indices .* are not 0\.\.1"):
        trajectory_order([4, 4], steps)
