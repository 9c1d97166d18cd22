"""The rules of comparisons, against numbers worked by hand."""

import math

import pytest

from benchmarks.referee import (
    Difference,
    ShortCurve,
    equivalent,
    holm,
    mean_until,
    over_starts,
    p_value,
    page_of,
    paired,
    read_at,
)  # fmt: skip

STEPS, SUCCESS = [0, 100, 200], [0.1, 0.3, 0.5]


def test_a_curve_is_read_between_its_points_and_never_past_its_end() -> None:
    assert read_at(150, STEPS, SUCCESS) == pytest.approx(0.4)
    assert mean_until(200, STEPS, SUCCESS) == pytest.approx(0.3)
    with pytest.raises(ShortCurve, match="grpo ends at 200, before 201"):
        read_at(201, STEPS, SUCCESS, "grpo")
    with pytest.raises(ShortCurve):
        mean_until(201, STEPS, SUCCESS)


def test_the_interval_is_over_starts_and_not_over_seeds() -> None:
    # Two seeds in each of three starts: means 0.2, 0.4, 0.6, deviation 0.2; t(0.975, 2) = 4.3027.
    values = {(0, 0): 0.1, (0, 1): 0.3, (1, 0): 0.4, (1, 1): 0.4, (2, 0): 0.5, (2, 1): 0.7}
    found = over_starts(values)
    assert (found.mean, found.n) == (pytest.approx(0.4), 3)
    assert found.high - found.mean == pytest.approx(4.3027 * 0.2 / math.sqrt(3), abs=1e-4)
    assert math.isnan(over_starts({cell: value for cell, value in values.items() if cell[0] < 2}).low)


def test_a_lead_from_many_seeds_of_one_start_is_no_lead() -> None:
    lead = {("start", seed): 0.3 + 0.001 * seed for seed in range(10)}
    assert p_value(lead) == 1.0
    assert str(page_of({"webshop": lead})["webshop"]) == "+0.30"


def test_p_of_a_difference() -> None:
    # Means 0.1, 0.2, 0.3: t = 0.2 / (0.1 / sqrt 3) = 3.4641 with 2 degrees: p = 0.0742.
    assert p_value({(start, 0): 0.1 * (start + 1) for start in range(3)}) == pytest.approx(0.0742, abs=1e-4)
    assert p_value({(start, 0): 0.1 for start in range(3)}) == 0.0
    assert p_value({(start, 0): 0.0 for start in range(3)}) == 1.0


def test_holm() -> None:
    # Sorted 0.01, 0.02, 0.04 of three: 0.03, 0.04, 0.04.
    assert holm([0.04, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.9]) == pytest.approx([1.0, 1.0])


def test_a_page_with_many_differences_marks_fewer() -> None:
    lead = {(start, 0): 0.2 + 0.02 * start for start in range(3)}  # p = 0.0027
    noise = {(start, 0): 0.1 * (-1) ** start for start in range(3)}
    assert str(page_of({"a": lead})["a"]).startswith("**+0.22")
    assert not str(page_of({"a": lead, **{f"n{i}": noise for i in range(30)}})["a"]).startswith("*")


def test_behind_is_marked_differently_from_ahead() -> None:
    behind = page_of({"a": {(start, 0): -0.2 - 0.01 * start for start in range(3)}})["a"]
    assert isinstance(behind, Difference) and str(behind).startswith("*-0.21") and not str(behind).startswith("**")


def test_differences_are_paired_by_start_and_seed() -> None:
    ours, other = {(0, 0): 0.5, (0, 1): 0.6, (1, 0): 0.9}, {(0, 0): 0.4, (1, 0): 0.5, (2, 0): 0.1}
    assert paired(ours, other) == pytest.approx({(0, 0): 0.1, (1, 0): 0.4})


def test_no_difference_needs_a_narrow_interval() -> None:
    # Deviation 0.01 over 4 starts, t(0.95, 3) = 2.3534: half width 0.0118.
    near = {(start, 0): value for start, value in enumerate((-0.01, 0.01, -0.00577, 0.00577))}
    assert equivalent(near, 0.02)
    assert not equivalent(near, 0.005)
    assert not equivalent({(0, 0): 0.0}, 0.02), "one start cannot show it"
