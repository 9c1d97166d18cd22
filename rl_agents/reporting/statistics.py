"""Confidence intervals of measured means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist, fmean, stdev

from rl_agents.data.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval; ``low`` and ``high`` are NaN if ``n`` is too small."""

    mean: float
    low: float
    high: float
    n: int

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    def of_rate(self) -> Interval:
        """Return the interval clipped to [0, 1]."""
        return Interval(self.mean, max(0.0, self.low), min(1.0, self.high), self.n) if self.n > 1 else self


def student_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of independent values: m ± t(n-1) · s / √n, with the sample standard deviation s.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("an interval needs at least one value")
    mean, n = fmean(values), len(values)
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = student_quantile(0.5 + confidence / 2, n - 1) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def wilson_interval(successes: int, trials: int, confidence: float = 0.95) -> Interval:
    """Success rate of ``trials`` independent tries, score interval (Wilson 1927).

    It stays within [0, 1] and keeps its coverage near 0 and 1, unlike the normal interval.

    Raises:
        ValueError: no trials, or more successes than trials.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} successes of {trials} trials")
    z, rate = NormalDist().inv_cdf(0.5 + confidence / 2), successes / trials
    scale = 1 + z * z / trials
    center = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else center - half
    high = 1.0 if successes == trials else center + half
    return Interval(rate, low, high, trials)


def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t distribution."""
    from scipy.special import stdtrit  # half a second; `scipy.stats` takes two

    return float(stdtrit(degrees, probability))


def success_interval(trajectories: Sequence[Trajectory]) -> Interval:
    """Return the success rate with its Wilson interval; failed episodes count as not solved."""
    return wilson_interval(sum(t.success for t in trajectories), len(trajectories))


def evaluation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the ``eval/`` metrics of one evaluation."""
    success = success_interval(trajectories)
    return {
        "eval/success_rate": success.mean,
        "eval/success_low": success.low,
        "eval/success_high": success.high,
        "eval/return_mean": fmean(t.episode_return for t in trajectories),
        "eval/turns_mean": fmean(len(t.steps) for t in trajectories),
        "eval/episodes": float(len(trajectories)),
        "eval/failed_episodes": float(sum(t.failed for t in trajectories)),
    }
