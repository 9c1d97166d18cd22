"""Intervals against tables and published examples."""

import math
from collections import Counter

import numpy as np
import pytest

from rl_agents.algorithms import Settings
from rl_agents.cli.evaluate import evaluation_report, sentence
from rl_agents.data.trajectory import Trajectory
from rl_agents.reporting.episode_diagnostics import EpisodeWatch
from rl_agents.reporting.statistics import (
    Interval,
    evaluation_metrics,
    pass_intervals,
    rose,
    student_interval,
    success_interval,
    wilson_interval,
)


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
    interval = wilson_interval(successes / trials, trials)
    assert interval.mean == successes / trials
    assert (interval.low, interval.high) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


@pytest.mark.parametrize(("rates", "low", "shown"), [((2, 2), 0.094, False), ((1, 3), 0.128, True)])
def test_seeds_that_agree_are_no_interval_of_an_evaluation(rates: tuple[int, int], low: float, shown: bool) -> None:
    """With two seeds of the same rate, only the interval over tasks is printed."""
    by_seed = [[Trajectory(f"t{n}", 0, 0, 0, success=n < rate) for n in range(4)] for rate in rates]
    said = sentence(evaluation_report(by_seed))
    assert said.startswith(f"success 0.500 [{low}, {1 - low:.3f}] over 8 episodes of 4 tasks")
    assert ("; over 2 seeds [" in said) is shown


def played(solved: list[int], times: int) -> list[Trajectory]:
    """Return ``times`` episodes of each task, of which it solves this many."""
    return [Trajectory(f"t{k}", 0, 0, 0, success=i < s) for k, s in enumerate(solved) for i in range(times)]


def test_repeats_of_a_task_are_no_independent_trials() -> None:
    """Seven tasks, eight times each: 23 of 56 are solved.

    By hand: p = 23/56; the deviations of tasks from 8p = 23/7 have squares of sum 147 - 23²/7 = 71.4286, times 7/6 is
    83.3333, and 8 more is 91.3333. The binomial variance is 56²/55 · p(1-p) = 13.8010, and 1 more. d = 6.1707;
    56/d = 9.0752; (t(55)/t(6))² = (2.00404/2.44691)² = 0.67078: n* = 6.0875. Wilson with z² = 3.8415.
    """
    interval = success_interval(played([8, 8, 4, 1, 1, 1, 0], 8))
    assert (interval.mean, interval.n) == (23 / 56, 7)
    center = (23 / 56 + 3.8415 / (2 * 6.0875)) / (1 + 3.8415 / 6.0875)
    assert (interval.low + interval.high) / 2 == pytest.approx(center, abs=1e-4)
    assert (interval.low, interval.high) == (pytest.approx(0.1373, abs=1e-4), pytest.approx(0.7532, abs=1e-4))


@pytest.mark.parametrize(("solved", "of"), [(81, 263), (1, 29), (0, 20), (20, 20)])
def test_an_episode_per_task_has_wilsons_interval(solved: int, of: int) -> None:
    wilson, mine = wilson_interval(solved / of, of), success_interval(played([1] * solved + [0] * (of - solved), 1))
    assert (mine.low, mine.high) == (pytest.approx(wilson.low), pytest.approx(wilson.high))


def test_tasks_that_all_agree_have_an_interval() -> None:
    """At most as many trials as tasks, however often each is repeated; a task says nothing about others."""
    none, all_of_them = success_interval(played([0] * 7, 8)), success_interval(played([8] * 7, 8))
    assert none.low == 0 and none.high == pytest.approx(1 - all_of_them.low) and none.high >= wilson_interval(0, 7).high
    assert success_interval(played([4], 8)).high - success_interval(played([4], 8)).low > 0.8
    assert success_interval(played([1], 1)) == Interval(1.0, wilson_interval(1, 1).low, 1.0, 1)


@pytest.mark.parametrize(("tasks", "times", "alike"), [(7, 8, 0.2), (7, 8, 10), (20, 8, 2), (100, 1, 2)])
def test_coverage(tasks: int, times: int, alike: float) -> None:
    """Tasks with success rates from Beta(0.3 · alike, 0.7 · alike): at least 93 % of the intervals contain 0.3."""
    rng, covered = np.random.default_rng(7), 0
    for _ in range(400):
        solved = rng.binomial(times, rng.beta(0.3 * alike, 0.7 * alike, size=tasks))
        interval = success_interval(played(solved.tolist(), times))
        covered += interval.low <= 0.3 <= interval.high
    assert covered / 400 >= 0.93


@pytest.mark.parametrize(
    ("solved", "n", "k", "one", "any_of_k", "all_of_k"),
    [  # C(5,2) = 10: a task of 2 in 5 has 1 - C(3,2)/10 = 0.7 and C(2,2)/10 = 0.1, one of 4 in 5 has 1 and 6/10
        ([2, 4, 0], 5, 2, 0.4, 1.7 / 3, 0.7 / 3),
        ([2, 4, 0], 5, 1, 0.4, 0.4, 0.4),
        ([2, 4, 5], 5, 5, 11 / 15, 1.0, 1 / 3),  # all samples: any, all
        ([0, 0], 4, 3, 0.0, 0.0, 0.0),
        ([4, 4], 4, 3, 1.0, 1.0, 1.0),
        ([1000], 2000, 1000, 0.5, 1.0, 0.0),  # the binomials have 600 digits
    ],
)
def test_pass_at_k_by_hand(solved: list[int], n: int, k: int, one: float, any_of_k: float, all_of_k: float) -> None:
    found = pass_intervals(played(solved, n), k)
    expected = {"pass@1": one, f"pass@{k}": any_of_k, f"pass^{k}": all_of_k}
    assert {name: rate.mean for name, rate in found.items()} == pytest.approx(expected)
    for rate in found.values():
        assert rate.n == len(solved) and 0 <= rate.low <= rate.mean <= rate.high <= 1
        assert rate.high - rate.low > 0, "a few tasks that agree say little about others"


def test_pass_at_1_is_success_over_tasks_unless_tasks_differ_in_episodes() -> None:
    episodes = played([8, 8, 4, 1, 1, 1, 0], 8)
    one, mine = pass_intervals(episodes, 3)["pass@1"], success_interval(episodes)
    assert (one.mean, one.low, one.high, one.n) == pytest.approx((mine.mean, mine.low, mine.high, mine.n))
    uneven = [*played([1], 1), *(Trajectory("other", 0, 0, 0) for _ in range(3))]
    assert pass_intervals(uneven, 1)["pass@1"].mean == 0.5 and success_interval(uneven).mean == 0.25


def test_the_estimators_are_unbiased() -> None:
    """The mean over all outcomes of 5 samples of a task that each solves with probability 0.3."""
    p, n, k, means = 0.3, 5, 3, {"pass@3": 0.0, "pass^3": 0.0}
    for c in range(n + 1):
        weight = math.comb(n, c) * p**c * (1 - p) ** (n - c)
        found = pass_intervals(played([c], n), k)
        means = {name: mean + weight * found[name].mean for name, mean in means.items()}
    assert means == pytest.approx({"pass@3": 1 - (1 - p) ** k, "pass^3": p**k})


@pytest.mark.parametrize(("tasks", "alike"), [(7, 0.5), (20, 0.5), (60, 2), (128, 10)])
def test_coverage_of_pass_at_k(tasks: int, alike: float) -> None:
    """Success rates from Beta(0.4 · alike, 0.6 · alike), whose moments give pass@4 and pass^4; 8 samples per task."""
    a, b, covered = 0.4 * alike, 0.6 * alike, Counter[str]()
    true = {"pass@4": 1 - math.prod((b + i) / (alike + i) for i in range(4)),
            "pass^4": math.prod((a + i) / (alike + i) for i in range(4))}  # fmt: skip
    rng = np.random.default_rng(5)
    for _ in range(300):
        found = pass_intervals(played(rng.binomial(8, rng.beta(a, b, size=tasks)).tolist(), 8), 4)
        covered.update(name for name, rate in true.items() if found[name].low <= rate <= found[name].high)
    assert min(covered.values()) / 300 >= 0.93, covered


@pytest.mark.parametrize(
    ("end", "yes"), [(Interval(0.45, 0.40, 0.50, 0), True), (Interval(0.35, 0.30, 0.40, 0), False)]
)
def test_a_rate_rose_if_the_interval_of_the_difference_is_above_zero(end: Interval, yes: bool) -> None:
    assert rose(Interval(0.30, 0.25, 0.36, 0), end) is yes  # 0.05 against hypot(0.05, 0.06)


def test_few_tasks_are_told_once() -> None:
    episodes, watch = played([4] * 7, 8), EpisodeWatch(Settings())
    assert evaluation_metrics(episodes)["eval/tasks"] == 7
    (line,) = watch.after_evaluation(episodes)
    assert line.startswith("success on few tasks (7) says little about others: add test tasks (at least 20")
    assert watch.after_evaluation(episodes) == []
    assert EpisodeWatch(Settings()).after_evaluation(played([1] * 20, 1)) == []
    assert EpisodeWatch(Settings()).after_evaluation(played([1] * 8, 1))[0].count("evaluate more episodes") == 1
