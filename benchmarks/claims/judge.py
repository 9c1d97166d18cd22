"""Verdicts from paired differences: their intervals, and the smallest effect that they can detect.

Runs with the same seed share tasks and some random numbers; their difference is one observation. Seeds are added in
steps of `LOOKS`. The intervals hold for all looks together (Bonferroni). A verdict stands only if it remains after
Holm's adjustment for all comparisons of the page, so the whole page has a wrong one in at most 5 % of cases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from rl_agents.reporting.statistics import Interval, student_interval, student_quantile

#: Numbers of seeds at which the result is judged.
LOOKS = (3, 5, 10, 20)
ERROR, POWER = 0.05, 0.8
CONFIDENCE = 1 - ERROR / len(LOOKS)
MOST_SEEDS = 1000

HOLDS, DIRECTION, NOTHING, CONTRADICTED = "holds", "holds in direction", "does not show", "contradicted"
SMALL = "ahead, but below half of the paper's"
#: Of an interval that excludes 0, but not after the adjustment for the other comparisons of the page.
HOLDS_ALONE, AGAINST_ALONE = "holds alone", "contradicted alone"
TOO_FEW, UNTOLD, BLIND = "too few seeds", "not measured", "cannot test it"


@dataclass(frozen=True)
class Finding:
    """The result of one comparison; positive values support the claim.

    Attributes:
        effect: mean paired difference and its interval at `CONFIDENCE`.
        spread: standard deviation of the paired differences.
        resolution: smallest effect that this number of seeds detects with probability `POWER`.
        wanted: number of seeds that detects the paper's effect as reliably; None: not reported in this unit.
        paper: the paper's effect; None: not reported in this unit.
    """

    effect: Interval
    spread: float
    resolution: float
    wanted: int | None
    paper: float | None = None

    @property
    def p(self) -> float:
        """Two-sided p of "no difference", for all looks together (t test over the differences)."""
        from scipy.special import stdtr

        if self.effect.n < LOOKS[0] or not self.spread > 0:
            return 1.0
        t = abs(self.effect.mean) * math.sqrt(self.effect.n) / self.spread
        return min(1.0, len(LOOKS) * 2 * float(stdtr(self.effect.n - 1, -t)))

    def verdict(self, adjusted: float) -> str:
        """Return the verdict; ``adjusted`` is p after the adjustment for the page."""
        own = self.own_verdict
        if adjusted < ERROR:
            return own
        return {HOLDS: HOLDS_ALONE, SMALL: HOLDS_ALONE, CONTRADICTED: AGAINST_ALONE}.get(own, own)

    @property
    def own_verdict(self) -> str:
        if math.isnan(self.effect.mean):
            return UNTOLD
        if self.effect.n < LOOKS[0]:
            return TOO_FEW
        if self.effect.low > 0:
            return SMALL if self.paper is not None and self.effect.high < self.paper / 2 else HOLDS
        if self.effect.high < 0:
            return CONTRADICTED
        return DIRECTION if self.effect.mean > 0 else NOTHING


def find(differences: Sequence[float], paper: float | None) -> Finding:
    """Judge paired differences, positive in favor of the claim; ``paper`` is the paper's effect in the same unit."""
    told = [value for value in differences if not math.isnan(value)]
    if len(told) < 2:
        mean = told[0] if told else math.nan
        return Finding(Interval(mean, math.nan, math.nan, len(told)), math.nan, math.nan, None)
    spread = stdev(told)
    wanted = seeds_for(paper, spread) if paper is not None and paper > 0 else None
    return Finding(student_interval(told, CONFIDENCE), spread, resolution(spread, len(told)), wanted, paper)


def resolution(spread: float, seeds: int) -> float:
    """Return the smallest effect that n seeds detect with probability p = `POWER`.

    (t(1 - e/2, n - 1) + t(p, n - 1)) s / sqrt(n), with e = 1 - `CONFIDENCE` and Student's quantiles t.
    """
    freedom = seeds - 1
    sure = student_quantile(0.5 + CONFIDENCE / 2, freedom) + student_quantile(POWER, freedom)
    return sure * spread / math.sqrt(seeds)


def seeds_for(effect: float, spread: float) -> int:
    """Return the number of seeds that detect ``effect`` with probability `POWER`, at most `MOST_SEEDS`."""
    return next((n for n in range(2, MOST_SEEDS) if resolution(spread, n) <= effect), MOST_SEEDS)


def together(verdicts: Sequence[str]) -> str:
    """Return the verdict on a claim with several comparisons.

    One verdict if all are equal, else the number of each.
    """
    told = [verdict for verdict in verdicts if verdict not in (TOO_FEW, UNTOLD)]
    if not told:
        return TOO_FEW if TOO_FEW in verdicts else UNTOLD
    return told[0] if len(set(told)) == 1 else _mixed(told)


def _mixed(verdicts: Sequence[str]) -> str:
    one = {verdict: f"is {verdict}" for verdict in (CONTRADICTED, AGAINST_ALONE, SMALL)}
    many = {
        HOLDS: "hold",
        HOLDS_ALONE: "hold alone",
        SMALL: "are ahead, but below half of the paper's",
        DIRECTION: "hold in direction",
        NOTHING: "do not show",
        AGAINST_ALONE: f"are {AGAINST_ALONE}",
        CONTRADICTED: f"are {CONTRADICTED}",
    }
    counts = {verdict: verdicts.count(verdict) for verdict in many if verdict in verdicts}
    said = (f"{n} {one.get(verdict, verdict) if n == 1 else many[verdict]}" for verdict, n in counts.items())
    return f"mixed: of {len(verdicts)} comparisons {', '.join(said)}"
