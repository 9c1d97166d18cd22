"""Results of a sweep: trials, points (means over seeds), and the best point as a recipe."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from rl_agents.config.loading import yaml_text
from rl_agents.durable import replace_text
from rl_agents.reporting.run_folder import json_safe
from rl_agents.reporting.statistics import Interval, student_interval
from rl_agents.trainer.unused_keys import idle_of
from rl_agents.tuning.driver import FAILED, STOPPED_EARLY, SweepFolder
from rl_agents.tuning.sweep import Sweep, TrialSpec, short

DONE, UNFINISHED = "done", "unfinished"
RATE = "eval/success_rate"
UNDECIDED = (
    "The intervals of {} other points overlap that of the highest mean: more seeds or test tasks would rank them."
)


@dataclass
class TrialResult:
    """The result of a run.

    Attributes:
        name: its folder under ``trials/``.
        status: ``done``, ``stopped early``, ``failed``, ``diverged``, ``bad_input`` or ``unfinished``.
        reason: why it is not done, if known.
        value: the metric's last value; None if there is none, or it is not finite.
        iteration: of that value.
        bounds: interval of the evaluation over its tasks, for success rates.
        not_finite: tag -> first iteration at which it was NaN or infinite.
    """

    name: str
    seed: int
    status: str
    reason: str
    value: float | None
    iteration: int
    seconds: float
    bounds: tuple[float, float] | None = None
    not_finite: dict[str, int] = field(default_factory=dict)


@dataclass
class PointResult:
    """A point of the space, with its runs.

    Attributes:
        keys: values of the space's keys.
        interval: mean over seeds with a value, with the 95 % interval (Student-t). For success rates it contains the
            mean interval over tasks of the evaluations (all seeds run the same tasks), because a few seeds may agree by
            chance. For other metrics there are no bounds if all seeds agree.
        status: the trials' common status, or the first that is not ``done``.
    """

    keys: dict[str, Any]
    trials: list[TrialResult]
    interval: Interval | None
    status: str


def collect(sweep: Sweep, folder: SweepFolder) -> list[PointResult]:
    """Return the result of each point, in the sweep's order."""
    points = []
    for _, group in itertools.groupby(sweep.trials, key=lambda spec: spec.point):
        specs = list(group)
        trials = [_trial(sweep, folder, spec) for spec in specs]
        status = next((trial.status for trial in trials if trial.status != DONE), DONE)
        points.append(PointResult(dict(specs[0].keys), trials, _interval(trials), status))
    return points


def _interval(trials: Sequence[TrialResult]) -> Interval | None:
    values = [trial.value for trial in trials if trial.value is not None]
    if not values:
        return None
    seeds, over_tasks = student_interval(values), [trial.bounds for trial in trials if trial.bounds is not None]
    if over_tasks:
        low, high = map(fmean, zip(*over_tasks, strict=True))
        bounds = (low, high, *((seeds.low, seeds.high) if seeds.n > 1 else ()))
        return Interval(seeds.mean, max(0.0, min(bounds)), min(1.0, max(bounds)), seeds.n)
    return seeds if seeds.low < seeds.high else Interval(seeds.mean, math.nan, math.nan, seeds.n)


def _trial(sweep: Sweep, folder: SweepFolder, spec: TrialSpec) -> TrialResult:
    run = folder.trial(spec)
    records = run.read_metrics()
    measured = [record for record in records if sweep.metric in record]
    last: Mapping[str, Any] = measured[-1] if measured else {}
    low, high = (last.get(f"eval/success_{end}") for end in ("low", "high"))
    outcome = folder.outcomes.get(spec.name, {})
    status = DONE if folder.is_done(spec) else outcome.get("status", UNFINISHED)
    return TrialResult(
        spec.name, spec.seed, status, outcome.get("reason", ""),
        value=last.get(sweep.metric), iteration=last.get("iteration", 0),
        seconds=round((records[-1].get("seconds") or 0.0) if records else 0.0, 1),
        bounds=None if sweep.metric != RATE or low is None or high is None else (low, high),
        not_finite=not_finite(records),
    )  # fmt: skip


def not_finite(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return tag -> first iteration at which it was NaN or infinite (null in metrics.jsonl)."""
    found: dict[str, int] = {}
    for record in records:
        for tag, value in record.items():
            if value is None:
                found.setdefault(tag, record["iteration"])
    return found


def best_point(sweep: Sweep, points: Sequence[PointResult]) -> PointResult | None:
    """Return the point with the best mean among those whose trials are all done; None if there is none."""
    done = [point for point in points if point.status == DONE and point.interval is not None]
    sign = 1 if sweep.mode == "max" else -1
    return max(done, key=lambda point: sign * mean(point), default=None)


def mean(point: PointResult) -> float:
    return point.interval.mean if point.interval is not None else math.nan


def write_results(sweep: Sweep, folder: SweepFolder) -> dict[str, Any]:
    """Write results.json, results.md and best.yaml into the sweep's folder; return the results."""
    points = collect(sweep, folder)
    best = best_point(sweep, points)
    complete = all(trial.status not in (UNFINISHED, FAILED) for point in points for trial in point.trials)
    done = sum(point.status == DONE for point in points)
    others = [point.interval for point in points if point is not best and point.status == DONE and point.interval]
    overlaps = sum(interval.overlaps(best.interval) for interval in others) if best and best.interval else 0
    of = f"{len(points)} points" if complete else f"{done} of {len(points)} points so far"
    results: dict[str, Any] = json_safe(
        {
            "sweep": sweep.name,
            "status": "done" if complete else "incomplete",
            "metric": sweep.metric,
            "mode": sweep.mode,
            "seeds": sweep.seeds,
            "best": best and {**asdict(best), "of": of, "overlaps": overlaps},
            "points": [asdict(point) for point in points],
        }
    )
    replace_text(folder.path / "results.json", json.dumps(results, indent=1) + "\n")
    replace_text(folder.path / "results.md", markdown(sweep, points, overlaps))
    if best is not None:
        replace_text(folder.path / "best.yaml", recipe(sweep, best, of))
    return results


def markdown(sweep: Sweep, points: Sequence[PointResult], overlaps: int) -> str:
    """Return the results as a table, best point first, and problems below."""
    sign = -1 if sweep.mode == "max" else 1
    ordered = sorted(points, key=lambda p: (p.status != DONE, p.interval is None, sign * mean(p) if p.interval else 0))
    names = list(sweep.space)
    head = [*names, sweep.metric, "95 % interval", "iteration", "seconds", "status"]
    rows = [_row(names, point) for point in ordered]
    lines = [
        f"# {sweep.name}", "", _explanation(sweep), "",
        *("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)),
    ]  # fmt: skip
    lines += ["", UNDECIDED.format(overlaps)] if overlaps else []
    notes = [note for point in points for trial in point.trials for note in trial_notes(trial)]
    return "\n".join([*lines, *(["", *(f"- {note}" for note in notes)] if notes else []), ""])


def _explanation(sweep: Sweep) -> str:
    is_rate = sweep.metric == RATE
    over = (
        f"mean over {sweep.seeds} seeds, Student-t interval over seeds{', at least that over test tasks' * is_rate}"
        if sweep.seeds > 1
        else "one run for each point, interval over the tasks of its last evaluation" if is_rate
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
    """Return a trial's problems as sentences."""
    notes = []
    if trial.reason and trial.status not in (DONE, STOPPED_EARLY):
        notes.append(f"{trial.name}: {trial.status}: {trial.reason}")
    if trial.not_finite:
        tags = ", ".join(f"{tag} (first at iteration {since})" for tag, since in trial.not_finite.items())
        notes.append(f"{trial.name}: not finite: {tags}")
    return notes


def recipe(sweep: Sweep, best: PointResult, of: str) -> str:
    """Return the best point as a recipe for ``run.py --config``; ``of`` is the number of candidates."""
    keys = {name: value for name, value in {**sweep.keys, **best.keys}.items() if name != "seed"}
    idle = idle_of(sweep.run_keys(keys))
    keys = {name: value for name, value in keys.items() if name not in idle}
    interval = best.interval
    assert interval is not None
    comment = (
        f"# Highest mean of {of} of {sweep.name}: {sweep.metric} {interval.mean:.3f}, "
        f"{len(best.trials)} run{'s' if len(best.trials) > 1 else ''} each."
    )
    return f"{comment}\n{yaml_text(keys)}"
