"""Results of a sweep: trials, points (means over seeds), the best point as a recipe, and a plot.

The plot is a heat map if two keys have grids, else it has one panel per key.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from rl_agents.durable import replace_text
from rl_agents.reporting.run_folder import json_safe
from rl_agents.reporting.statistics import Interval, student_interval, wilson_interval
from rl_agents.trainer.unused_keys import idle_of
from rl_agents.tuning.driver import FAILED, STOPPED_EARLY, SweepFolder
from rl_agents.tuning.sweep import Grid, Sweep, TrialSpec, short

DONE, UNFINISHED = "done", "unfinished"
RATE = "eval/success_rate"


@dataclass
class TrialResult:
    """The result of a run.

    Attributes:
        name: its folder under ``trials/``.
        status: ``done``, ``stopped early``, ``failed``, ``diverged``, ``bad_input`` or ``unfinished``.
        reason: why it is not done, if known.
        value: the metric's last value; None if there is none, or it is not finite.
        iteration: of that value.
        episodes: of the evaluation, for success rates.
        not_finite: tag -> first iteration at which it was NaN or infinite.
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


@dataclass
class PointResult:
    """A point of the space, with its runs.

    Attributes:
        keys: values of the space's keys.
        interval: mean over seeds with a value, with the 95 % interval (Student-t). For success rates it contains the
            interval over the episodes of all evaluations (Wilson), because a few seeds may agree by chance. For other
            metrics there are no bounds if all seeds agree.
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
    """Write results.json, results.md, best.yaml and the plot into the sweep's folder; return the results."""
    points = collect(sweep, folder)
    best = best_point(sweep, points)
    complete = all(trial.status not in (UNFINISHED, FAILED) for point in points for trial in point.trials)
    done = sum(point.status == DONE for point in points)
    of = f"{len(points)} points" if complete else f"{done} of {len(points)} points so far"
    picture = plot_points(sweep, points, folder.path)
    results: dict[str, Any] = json_safe(
        {
            "sweep": sweep.name,
            "status": "done" if complete else "incomplete",
            "metric": sweep.metric,
            "mode": sweep.mode,
            "seeds": sweep.seeds,
            "best": None if best is None else {"keys": best.keys, "of": of, "interval": _bounds(best)},
            "points": [{**asdict(point), "interval": _bounds(point)} for point in points],
            "plot": picture,
        }
    )
    replace_text(folder.path / "results.json", json.dumps(results, indent=1) + "\n")
    replace_text(folder.path / "results.md", markdown(sweep, points))
    if best is not None:
        replace_text(folder.path / "best.yaml", recipe(sweep, best, of))
    return results


def _bounds(point: PointResult) -> dict[str, float] | None:
    return None if point.interval is None else point.interval.to_dict()


def markdown(sweep: Sweep, points: Sequence[PointResult]) -> str:
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
    notes = [note for point in points for trial in point.trials for note in trial_notes(trial)]
    return "\n".join([*lines, *(["", *(f"- {note}" for note in notes)] if notes else []), ""])


def _explanation(sweep: Sweep) -> str:
    is_rate = sweep.metric == RATE
    over = (
        f"mean over {sweep.seeds} seeds, Student-t interval over seeds{', at least Wilson over all episodes' * is_rate}"
        if sweep.seeds > 1
        else "one run for each point, Wilson interval over the episodes of its last evaluation" if is_rate
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
        f"# Best of {of} of {sweep.name}: {sweep.metric} {interval.mean:.3f}, "
        f"{len(best.trials)} run{'s' if len(best.trials) > 1 else ''} each."
    )
    return f"{comment}\n{yaml.safe_dump(keys, sort_keys=False, allow_unicode=True)}"


BLUE = "#0072b2"


def plot_points(sweep: Sweep, points: Sequence[PointResult], folder: Path) -> str | None:
    """Draw a sweep.

    Returns:
        The file's name in ``folder``, ``heatmap.png`` or ``sweep.png``; None if no trial has a value yet.
    """
    if all(point.interval is None for point in points):
        return None
    from matplotlib.figure import Figure

    grids = all(isinstance(choice, Grid) for choice in sweep.space.values())
    draw, name, size = _panels, "sweep.png", (1.5 + 4.5 * len(sweep.space), 4.5)
    if grids and len(sweep.space) == 2:
        draw, name, size = _heat_map, "heatmap.png", (7, 5)
    figure = Figure(figsize=size, dpi=120, facecolor="white", layout="constrained")
    draw(figure, sweep, points)
    figure.savefig(folder / name)
    return name


def _heat_map(figure: Any, sweep: Sweep, points: Sequence[PointResult]) -> None:
    """Draw the mean and its interval for each value of the first key (rows) and the second key (columns)."""
    (row_key, rows), (column_key, columns) = (
        (name, list(choice.values)) for name, choice in sweep.space.items() if isinstance(choice, Grid)
    )
    means = [[math.nan] * len(columns) for _ in rows]
    notes = [[""] * len(columns) for _ in rows]
    for point in points:
        row, column = rows.index(point.keys[row_key]), columns.index(point.keys[column_key])
        notes[row][column] = point.status
        if point.interval is not None:
            interval = point.interval
            means[row][column] = interval.mean
            bounds = "" if math.isnan(interval.low) else f"\n[{interval.low:.2f}, {interval.high:.2f}]"
            notes[row][column] = f"{interval.mean:.3f}{bounds}" + ("" if point.status == "done" else "\nunfinished")
    axes = figure.add_subplot()
    low, high = _color_range(points)
    image = axes.imshow(means, cmap="viridis", aspect="auto", vmin=low, vmax=high)
    middle = (image.norm.vmin + image.norm.vmax) / 2
    for row, line in enumerate(notes):
        for column, text in enumerate(line):
            dark = means[row][column] <= middle
            color = "black" if math.isnan(means[row][column]) or not dark else "white"
            axes.text(column, row, text, ha="center", va="center", fontsize=13, color=color)
    axes.set_xticks(range(len(columns)), [short(value) for value in columns])
    axes.set_yticks(range(len(rows)), [short(value) for value in rows])
    axes.tick_params(labelsize=13)
    axes.set_xlabel(column_key, fontsize=14)
    axes.set_ylabel(row_key, fontsize=14)
    axes.set_title(sweep.name, fontsize=15)
    bar = figure.colorbar(image, ax=axes)
    bar.set_label(f"{sweep.metric}, mean of the seeds", fontsize=13)
    bar.ax.tick_params(labelsize=12)


def _color_range(points: Sequence[PointResult]) -> tuple[float, float]:
    """Return the range of means, widened by the median half interval, so that noise has similar colors."""
    intervals = [point.interval for point in points if point.interval is not None]
    halves = [(i.high - i.low) / 2 for i in intervals if not math.isnan(i.low)]
    margin = median(halves) if halves else 0.0
    means = [interval.mean for interval in intervals]
    return min(means) - margin, max(means) + margin


def _panels(figure: Any, sweep: Sweep, points: Sequence[PointResult]) -> None:
    """Draw a panel per key with the metric and its intervals, joined if no other key varies."""
    shown = [point for point in points if point.interval is not None]
    panels = figure.subplots(1, len(sweep.space), sharey=True, squeeze=False)[0]
    for axes, (name, choice) in zip(panels, sweep.space.items(), strict=True):
        values = [point.keys[name] for point in shown]
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        places = values if numeric else [sorted(map(short, set(map(short, values)))).index(short(v)) for v in values]
        order = sorted(range(len(shown)), key=lambda i: places[i])
        for i in order:
            _whisker(axes, places[i], shown[i])
        if len(sweep.space) == 1:
            means = [shown[i].interval.mean for i in order]  # type: ignore[union-attr]
            axes.plot([places[i] for i in order], means, color=BLUE, linewidth=1.5)
        if numeric and min(values) > 0 and (getattr(choice, "log", False) or max(values) / min(values) >= 20):
            axes.set_xscale("log")
        if not numeric:
            axes.set_xticks(range(len(set(places))), sorted(set(map(short, values))))
        _style(axes, name)
    panels[0].set_ylabel(f"{sweep.metric}, mean of the seeds", fontsize=13)
    hollow = "" if all(point.status == "done" for point in shown) else "; hollow: unfinished"
    figure.suptitle(f"{sweep.name}\npoints with 95 % intervals{hollow}", fontsize=14)


def _whisker(axes: Any, place: float, point: PointResult) -> None:
    interval, done = point.interval, point.status == "done"
    assert interval is not None
    if not math.isnan(interval.low):
        axes.plot([place, place], [interval.low, interval.high], color=BLUE, alpha=0.4, linewidth=2)
    # Hollow: not trained to the end.
    axes.plot([place], [interval.mean], "o", color=BLUE, markerfacecolor=BLUE if done else "white", markersize=6)


def _style(axes: Any, label: str) -> None:
    axes.set_xlabel(label, fontsize=13)
    axes.tick_params(labelsize=12)
    axes.grid(True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
