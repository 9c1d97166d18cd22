"""What the runs of a sweep came to: one result for each trial, and one for each point over its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rl_agents.reporting.statistics import Interval, student_interval, wilson_interval
from rl_agents.tuning.driver import SweepFolder, current_keys
from rl_agents.tuning.space import TrialSpec
from rl_agents.tuning.sweep import Sweep
from rl_agents.tuning.trial import read_lineage

DONE, UNFINISHED = "done", "unfinished"
RATE = "eval/success_rate"


@dataclass
class TrialResult:
    """How one run ended.

    Attributes:
        name: its folder under ``trials/``.
        status: ``done``, ``stopped early``, ``failed``, ``diverged``, ``bad_input`` or ``unfinished``.
        reason: why it is not done, where that is known.
        value: the metric's last value; None when there is none, or it is not finite.
        iteration: of that value.
        seconds: of the loop.
        episodes: of the evaluation that the value is of, for success rates.
        not_finite: tag -> first iteration at which it was NaN or infinite.
        lineage: whom it took over (population based training).
    """

    name: str
    seed: int
    status: str
    reason: str
    value: float | None
    iteration: int
    seconds: float
    episodes: int = 0
    not_finite: dict[str, int] = field(default_factory=dict)
    lineage: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class PointResult:
    """One point of the space: its runs with all seeds.

    Attributes:
        keys: values of the space's keys (population based training: the last ones).
        interval: mean over the seeds that have a value, with the 95 % interval (Student-t). Of success rates it holds
            the interval over the episodes of all their evaluations, too (Wilson): a few seeds may agree by chance.
            Of other metrics there are no bounds where all seeds agree.
        status: the trials' common status, or the first that is not ``done``.
    """

    keys: dict[str, Any]
    trials: list[TrialResult]
    interval: Interval | None
    status: str


def collect(sweep: Sweep, folder: SweepFolder) -> list[PointResult]:
    """Read all run folders of a sweep; one result for each point, in the sweep's order."""
    points: dict[int, list[TrialSpec]] = {}
    for spec in sweep.trials:
        points.setdefault(spec.point, []).append(spec)
    return [_point(sweep, folder, specs) for specs in points.values()]


def _point(sweep: Sweep, folder: SweepFolder, specs: Sequence[TrialSpec]) -> PointResult:
    trials = [_trial(sweep, folder, spec) for spec in specs]
    interval = _interval(trials)
    status = next((trial.status for trial in trials if trial.status != DONE), DONE)
    return PointResult(current_keys(sweep, folder, specs[0]), trials, interval, status)


def _interval(trials: Sequence[TrialResult]) -> Interval | None:
    measured = [(trial.value, trial.episodes) for trial in trials if trial.value is not None]
    if not measured:
        return None
    seeds, episodes = student_interval([value for value, _ in measured]), sum(n for _, n in measured)
    if episodes:
        pooled = wilson_interval(round(sum(value * n for value, n in measured)), episodes)
        bounds = (pooled.low, pooled.high, *((seeds.low, seeds.high) if seeds.n > 1 else ()))
        return Interval(seeds.mean, max(0.0, min(bounds)), min(1.0, max(bounds)), seeds.n)
    return seeds if seeds.low < seeds.high else Interval(seeds.mean, math.nan, math.nan, seeds.n)


def _trial(sweep: Sweep, folder: SweepFolder, spec: TrialSpec) -> TrialResult:
    run = folder.trial(spec)
    records = run.read_metrics()
    measured = [record for record in records if sweep.metric in record]
    last: Mapping[str, Any] = measured[-1] if measured else {}
    outcome = folder.outcomes.get(spec.name, {})
    status = DONE if folder.is_done(spec) else outcome.get("status", UNFINISHED)
    return TrialResult(
        spec.name, spec.seed, status, outcome.get("reason", ""),
        value=last.get(sweep.metric), iteration=last.get("iteration", 0),
        seconds=round((records[-1].get("seconds") or 0.0) if records else 0.0, 1),
        episodes=round(last.get("eval/episodes", 0)) if sweep.metric == RATE else 0,
        not_finite=not_finite(records), lineage=read_lineage(run.path),
    )  # fmt: skip


def not_finite(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the tags that were NaN or infinite, which metrics.jsonl writes as null, and since when."""
    found: dict[str, int] = {}
    for record in records:
        for tag, value in record.items():
            if value is None:
                found.setdefault(tag, record["iteration"])
    return found


def best_point(sweep: Sweep, points: Sequence[PointResult]) -> PointResult | None:
    """Return the point with the best mean among those whose trials are all done; None when there is none."""
    done = [point for point in points if point.status == DONE and point.interval is not None]
    sign = 1 if sweep.mode == "max" else -1
    return max(done, key=lambda point: sign * mean(point), default=None)


def mean(point: PointResult) -> float:
    return point.interval.mean if point.interval is not None else math.nan
