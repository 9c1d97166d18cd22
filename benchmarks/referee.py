"""The rules of every comparison: docs/research/how-we-compare.md explains them with an example.

1. A curve is never read past its end.
2. The warm-start model (start) is a random effect: seeds are averaged within a start, and the interval is over starts.
3. Differences are paired by start and seed.
4. A page that shows several differences adjusts for their number (Holm).
5. "No difference" needs an equivalence test: the 90% interval lies within the margin.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import numpy as np

from benchmarks.report import shown
from rl_agents.reporting.statistics import Interval, student_interval

ERROR = 0.05
#: Fewer starts have no interval.
FEWEST_STARTS = 3
#: Start and seed of a run.
Cell = tuple[Hashable, Hashable]


class ShortCurve(ValueError):
    """A curve ends before the budget at which it is to be read."""


def read_at(budget: float, steps: Sequence[float], values: Sequence[float], name: str = "curve") -> float:
    """Interpolate a curve at ``budget``.

    Raises:
        ShortCurve: the curve ends before it.
    """
    if budget > steps[-1]:
        raise ShortCurve(f"{name} ends at {steps[-1]:g}, before {budget:g}: run it to the budget")
    return float(np.interp(budget, steps, values))


def mean_until(budget: float, steps: Sequence[float], values: Sequence[float], since: float = 0.0) -> float:
    """Return the mean of a curve between ``since`` and ``budget``; raises as `read_at`."""
    read_at(budget, steps, values)
    return float(np.interp(np.linspace(since, budget, 200), steps, values).mean())


def start_means(values: Mapping[Cell, float]) -> list[float]:
    """Return the mean over the seeds of each start."""
    starts = dict.fromkeys(start for start, _ in values)
    return [fmean(value for (own, _), value in values.items() if own == start) for start in starts]


def over_starts(values: Mapping[Cell, float], confidence: float = 1 - ERROR) -> Interval:
    """Mean and Student's interval over the means of the starts: m ± t(k-1) · s / √k for k starts.

    The spread between the starts' means contains that between their seeds, so seeds need no term of their own. With
    fewer than `FEWEST_STARTS` starts there is no interval.
    """
    means = start_means(values)
    if len(means) < FEWEST_STARTS:
        return Interval(fmean(means), math.nan, math.nan, len(means))
    return student_interval(means, confidence)


def paired(ours: Mapping[Cell, float], other: Mapping[Cell, float]) -> dict[Cell, float]:
    """Return the differences at the common starts and seeds."""
    return {cell: ours[cell] - other[cell] for cell in ours if cell in other}


def p_value(differences: Mapping[Cell, float]) -> float:
    """Two-sided p of "no difference" (t test over the starts' means); 1 with too few starts."""
    from scipy.special import stdtr

    means = start_means(differences)
    if len(means) < FEWEST_STARTS:
        return 1.0
    if (spread := stdev(means)) == 0:
        return float(fmean(means) == 0)
    return float(2 * stdtr(len(means) - 1, -abs(fmean(means)) / (spread / math.sqrt(len(means)))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: p₍ᵢ₎·(m - i + 1), made monotone, at most 1 (Holm 1979)."""
    adjusted, highest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def equivalent(differences: Mapping[Cell, float], margin: float) -> bool:
    """Whether two one-sided tests at 5% show a difference within ±``margin``: the 90% interval lies inside it."""
    interval = over_starts(differences, 1 - 2 * ERROR)
    return -margin < interval.low and interval.high < margin  # NaN: never


@dataclass(frozen=True)
class Difference:
    """A difference as a page shows it; ``adjusted`` is Holm's p over all differences of the page."""

    interval: Interval
    adjusted: float

    def __str__(self) -> str:
        mark = "" if self.adjusted >= ERROR else "**" if self.interval.mean > 0 else "*"
        return f"{mark}{shown(self.interval, '+.2f')}{mark}"


def page_of(differences: Mapping[str, Mapping[Cell, float]]) -> dict[str, Difference]:
    """Return all differences of a page, adjusted together."""
    adjusted = holm([p_value(own) for own in differences.values()])
    return {
        name: Difference(over_starts(own), p)
        for (name, own), p in zip(differences.items(), adjusted, strict=True)
    }  # fmt: skip
