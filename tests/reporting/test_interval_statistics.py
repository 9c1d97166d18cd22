"""Intervals against tables and published examples."""

import math

import pytest

from rl_agents.cli.evaluate import evaluation_report, sentence
from rl_agents.data.trajectory import Trajectory
from rl_agents.reporting.statistics import student_interval, student_quantile, wilson_interval


@pytest.mark.parametrize(("probability", "degrees", "expected"), [(0.975, 1, 12.7062), (0.975, 120, 1.97993)])
def test_student_quantile_is_the_table(probability: float, degrees: int, expected: float) -> None:
    assert student_quantile(probability, degrees) == pytest.approx(expected, abs=1e-4)


def test_student_interval_by_hand() -> None:
    interval = student_interval([1.0, 2.0, 3.0])  # sd 1, t(2) = 4.30265, half width 4.30265 / sqrt(3)
    assert interval.mean == 2
    assert interval.high - interval.mean == pytest.approx(2.48414, abs=1e-4)
    assert interval.of_rate().high == 1.0


def test_one_value_has_no_interval() -> None:
    interval = student_interval([0.5])
    assert interval.mean == 0.5 and math.isnan(interval.low)
    assert interval.of_rate() == interval
    with pytest.raises(ValueError, match="at least one"):
        student_interval([])


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    # Newcombe 1998, table I, method 3.
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_interval_is_newcombes_table(successes: int, trials: int, low: float, high: float) -> None:
    interval = wilson_interval(successes, trials)
    assert interval.mean == successes / trials
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


def test_wilson_interval_at_the_edges() -> None:
    assert wilson_interval(5, 5).high == 1.0
    assert wilson_interval(0, 5).low == 0.0
    with pytest.raises(ValueError, match="3 successes of 2 trials"):
        wilson_interval(3, 2)


@pytest.mark.parametrize(("rates", "shown"), [((2, 2), False), ((1, 3), True)])
def test_seeds_that_agree_are_no_interval_of_an_evaluation(rates: tuple[int, int], shown: bool) -> None:
    """With two seeds of the same rate, the interval over episodes is printed."""
    by_seed = [[Trajectory("t", 0, 0, 0, success=n < rate) for n in range(4)] for rate in rates]
    said = sentence(evaluation_report(by_seed))
    assert said.startswith("success 0.500 [0.215, 0.785] over 8 episodes")
    assert ("; over 2 seeds [" in said) is shown
