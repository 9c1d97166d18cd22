"""What a sweep found: one line for each point, the best one as a recipe, and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml

from rl_agents.core.idle import idle_of
from rl_agents.reporting.run_folder import json_safe, write_atomically
from rl_agents.reporting.statistics import Interval, student_interval
from rl_agents.tuning.driver import FAILED, STOPPED_EARLY, SweepFolder, current_keys
from rl_agents.tuning.space import TrialSpec, short
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
        low, high: interval of the value over the episodes of its evaluation, for success rates.
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
    low: float | None = None
    high: float | None = None
    not_finite: dict[str, int] = field(default_factory=dict)
    lineage: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class PointResult:
    """One point of the space: its runs with all seeds.

    Attributes:
        keys: values of the space's keys (population based training: the last ones).
        interval: mean over the seeds that have a value, with the 95 % interval (Student-t); with one seed the
            interval over the evaluation's episodes (Wilson), for success rates.
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
    values = [trial.value for trial in trials if trial.value is not None]
    interval = student_interval(values) if values else None
    if interval is not None and len(specs) == 1 and trials[0].low is not None and trials[0].high is not None:
        interval = Interval(interval.mean, trials[0].low, trials[0].high, 1)
    elif interval is not None and sweep.metric == RATE:
        interval = interval.clipped(0, 1)
    status = next((trial.status for trial in trials if trial.status != DONE), DONE)
    return PointResult(current_keys(sweep, folder, specs[0]), trials, interval, status)


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
        low=last.get("eval/success_low") if sweep.metric == RATE else None,
        high=last.get("eval/success_high") if sweep.metric == RATE else None,
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
    return max(done, key=lambda point: sign * _mean(point), default=None)


def _mean(point: PointResult) -> float:
    return point.interval.mean if point.interval is not None else math.nan


def write_results(sweep: Sweep, folder: SweepFolder) -> dict[str, Any]:
    """Write results.json, results.md, best.yaml and the plot into the sweep's folder; return the first."""
    from rl_agents.tuning.plots import plot_points

    points = collect(sweep, folder)
    best = best_point(sweep, points)
    complete = all(trial.status not in (UNFINISHED, FAILED) for point in points for trial in point.trials)
    picture = plot_points(sweep, points, folder.path)
    results: dict[str, Any] = json_safe(
        {
            "sweep": sweep.name,
            "status": "done" if complete else "incomplete",
            "metric": sweep.metric,
            "mode": sweep.mode,
            "seeds": sweep.seeds,
            "best": None if best is None else {"keys": best.keys, "interval": _interval(best)},
            "points": [{**asdict(point), "interval": _interval(point)} for point in points],
            "plot": picture,
        }
    )
    write_atomically(folder.path / "results.json", json.dumps(results, indent=1) + "\n")
    write_atomically(folder.path / "results.md", markdown(sweep, points))
    if best is not None:
        write_atomically(folder.path / "best.yaml", recipe(sweep, best))
    return results


def _interval(point: PointResult) -> dict[str, float] | None:
    return None if point.interval is None else point.interval.to_dict()


def markdown(sweep: Sweep, points: Sequence[PointResult]) -> str:
    """Return the results as a table, the best point first, and below it everything that went wrong."""
    sign = -1 if sweep.mode == "max" else 1
    ordered = sorted(points, key=lambda p: (p.status != DONE, p.interval is None, sign * _mean(p) if p.interval else 0))
    names = list(sweep.space)
    head = [*names, sweep.metric, "95 % interval", "iteration", "seconds", "status"]
    rows = [_row(names, point) for point in ordered]
    lines = [
        f"# {sweep.name}", "", _explanation(sweep), "",
        *("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)),
    ]  # fmt: skip
    notes = [note for point in points for trial in point.trials for note in trial_notes(trial)]
    return "\n".join([*lines, *(["", *(f"- {note}" for note in notes)] if notes else []), ""])


def _explanation(sweep: Sweep) -> str:
    over = (
        f"mean over {sweep.seeds} seeds, Student-t interval over them" if sweep.seeds > 1
        else "one run for each point, Wilson interval over the episodes of its last evaluation" if sweep.metric == RATE
        else "one run for each point"
    )  # fmt: skip
    return f"{sweep.metric} at the end of each run: {over}."


def _row(names: Sequence[str], point: PointResult) -> list[str]:
    interval = point.interval
    bounds = "" if interval is None or math.isnan(interval.low) else f"[{interval.low:.3f}, {interval.high:.3f}]"
    return [
        *(short(point.keys[name]) for name in names),
        "" if interval is None else f"{interval.mean:.3f}",
        bounds,
        str(max(trial.iteration for trial in point.trials)),
        f"{sum(trial.seconds for trial in point.trials):.0f}",
        point.status,
    ]


def trial_notes(trial: TrialResult) -> list[str]:
    """Return sentences about what went wrong in a trial, and whom it took over."""
    notes = []
    if trial.reason and trial.status not in (DONE, STOPPED_EARLY):
        notes.append(f"{trial.name}: {trial.status}: {trial.reason}")
    if trial.not_finite:
        tags = ", ".join(f"{tag} (first at iteration {since})" for tag, since in trial.not_finite.items())
        notes.append(f"{trial.name}: not finite: {tags}")
    notes.extend(f"{trial.name}: took over {e['from']} at iteration {e['iteration']}" for e in trial.lineage)
    return notes


def recipe(sweep: Sweep, best: PointResult) -> str:
    """Return the best point as a recipe for ``run.py --config``."""
    keys = {name: value for name, value in {**sweep.keys, **best.keys}.items() if name != "seed"}
    idle = idle_of(sweep.run_keys(keys))
    keys = {name: value for name, value in keys.items() if name not in idle}
    interval = best.interval
    assert interval is not None
    comment = [
        f"# Best of {len(sweep.trials) // sweep.seeds} points of {sweep.name}: {sweep.metric} {interval.mean:.3f}, "
        f"{len(best.trials)} run{'s' if len(best.trials) > 1 else ''} each.",
    ]
    if any(trial.lineage for trial in best.trials):
        comment.append("# Keys changed during the run; these are the last values, see results.json for the rest.")
    return "\n".join([*comment, yaml.safe_dump(keys, sort_keys=False, allow_unicode=True)])
