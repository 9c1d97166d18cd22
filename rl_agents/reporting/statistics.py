"""Confidence intervals of measured means."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist, fmean, stdev

from rl_agents.data.trajectory import Trajectory, seat_metrics

#: Fewer distinct tasks say little about other tasks: reports warn.
FEW_TASKS = 20


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its confidence interval; ``low`` and ``high`` are NaN if ``n`` (values, tasks) is too small."""

    mean: float
    low: float
    high: float
    n: int

    def to_dict(self) -> dict[str, float]:
        return asdict(self)

    def __format__(self, spec: str) -> str:
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def overlaps(self, other: Interval) -> bool:
        """Return whether both may contain the same value; true if a bound is unknown."""
        return not (self.low > other.high or other.low > self.high)

    def of_rate(self) -> Interval:
        """Return the interval clipped to [0, 1]."""
        return Interval(self.mean, max(0.0, self.low), min(1.0, self.high), self.n) if self.n > 1 else self


def student_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Mean of independent values: m ± t(n-1) · s / √n, with sample deviation s; raises `ValueError` without values."""
    mean, n = fmean(values), len(values)
    if n == 1:
        return Interval(mean, math.nan, math.nan, 1)
    half = student_quantile(0.5 + confidence / 2, n - 1) * stdev(values) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def wilson_interval(rate: float, trials: float, confidence: float = 0.95) -> Interval:
    """Success rate of independent tries, score interval (Wilson 1927); ``trials`` may be an effective number.

    It stays within [0, 1] and keeps its coverage near 0 and 1, unlike the normal interval.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    scale = 1 + z * z / trials
    center = (rate + z * z / (2 * trials)) / scale
    half = z / scale * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    low = 0.0 if rate == 0 else center - half
    high = 1.0 if rate == 1 else center + half
    return Interval(rate, low, high, round(trials))


def student_quantile(probability: float, degrees: float) -> float:
    """Return a quantile of Student's t distribution."""
    from scipy.special import stdtrit  # half a second; `scipy.stats` takes two

    return float(stdtrit(degrees, probability))


def success_interval(trajectories: Sequence[Trajectory]) -> Interval:
    """Success rate with its 95 % interval for tasks of this kind; ``n`` counts tasks, and failed episodes are unsolved.

    Episodes of a task are alike. Task k of K has n_k of the N episodes and s_k successes, p = Σ s_k / N, and the
    interval is Wilson's with n* trials:

        d = max(1, (K/(K-1) · Σ (s_k - n_k·p)² + Σ n_k²/N) / (N²/(N-1) · p(1-p) + 1))
        n* = N/d · (t(N-1) / t(K-1))²

    d is the design effect, the cluster-robust variance between tasks over the binomial one, after one more success that
    all episodes of its task share: so K tasks of which all or none are solved count as at most K trials. t is Student's
    97.5 % quantile (Korn and Graubard 1998). With one episode per task, n* = N.
    """
    return _rate_interval(list(_solved(trajectories).values()))


def pass_intervals(trajectories: Sequence[Trajectory], k: int) -> dict[str, Interval]:
    """Return ``pass@1``, ``pass@k`` (any of k samples solves a task) and ``pass^k`` (all of k do), with intervals.

    Unbiased for a task that c of n episodes solve: 1 - C(n-c, k) / C(n, k) (Chen et al., arXiv 2107.03374) and
    C(c, k) / C(n, k) (Yao et al., arXiv 2406.12045). Each is the mean over tasks. Its 95 % interval is that of
    `success_interval` if every task tries m = N / (K·k) times, the number of its separate sets of k samples, and
    succeeds m times its estimate. N episodes of K tasks; k = 1 in pass@1.

    Args:
        k: at most the number of episodes of any task.
    """
    solved = list(_solved(trajectories).values())

    def over_tasks(k: int, rates: Sequence[float]) -> Interval:
        tries = len(trajectories) / (len(rates) * k)
        return _rate_interval([(tries * rate, tries) for rate in rates])

    return {
        "pass@1": over_tasks(1, [c / n for c, n in solved]),
        f"pass@{k}": over_tasks(k, [1 - math.comb(n - c, k) / math.comb(n, k) for c, n in solved]),
        f"pass^{k}": over_tasks(k, [math.comb(c, k) / math.comb(n, k) for c, n in solved]),
    }


def _solved(trajectories: Sequence[Trajectory]) -> dict[str, tuple[int, int]]:
    """Return (solved episodes, episodes) of every task."""
    solved = Counter(t.task_id for t in trajectories if t.success)
    return {task: (solved[task], n) for task, n in Counter(t.task_id for t in trajectories).items()}


def _rate_interval(solved: Sequence[tuple[float, float]]) -> Interval:
    """See `success_interval`; ``solved`` has (s_k, n_k) of every task."""
    count, tasks = sum(n for _, n in solved), len(solved)
    rate = sum(s for s, _ in solved) / count
    between = sum((s - n * rate) ** 2 for s, n in solved) * tasks / max(1, tasks - 1)
    binomial = count**2 / max(1, count - 1) * rate * (1 - rate)
    design = max(1.0, (between + sum(n * n for _, n in solved) / count) / (binomial + 1))
    few = student_quantile(0.975, max(1, count - 1)) / student_quantile(0.975, max(1, tasks - 1))
    return replace(wilson_interval(rate, count / design * few**2), n=tasks)


def few_tasks(episodes: float, tasks: float) -> str:
    """Return a warning about an evaluation of fewer than `FEW_TASKS` tasks; else an empty text."""
    more = "add test tasks" if tasks < episodes else "evaluate more episodes"
    text = f"success on few tasks ({tasks:.0f}) says little about others: {more} (at least {FEW_TASKS} different tasks)"
    return text if tasks < FEW_TASKS else ""


def rose(start: Interval, end: Interval) -> bool:
    """Return whether the 95 % interval of the difference of two rates is above 0 (Newcombe 1998, method 10)."""
    return end.mean - start.mean > math.hypot(end.mean - end.low, start.high - start.mean)


def evaluation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return the ``eval/`` metrics of one evaluation."""
    success = success_interval(trajectories)
    return {
        "eval/success_rate": success.mean,
        "eval/success_low": success.low,
        "eval/success_high": success.high,
        "eval/return_mean": fmean(t.episode_return for t in trajectories),
        "eval/turns_mean": fmean(t.turns for t in trajectories),
        "eval/episodes": float(len(trajectories)),
        "eval/tasks": float(success.n),
        "eval/failed_episodes": float(sum(t.failed for t in trajectories)),
        **seat_metrics("eval", trajectories),
    }
