"""Pictures of a sweep: a heat map when two keys vary over grids, else one panel for each key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rl_agents.reporting.run_folder import RunFolder
from rl_agents.tuning.results import PointResult
from rl_agents.tuning.space import Grid, short
from rl_agents.tuning.sweep import Sweep

#: Okabe and Ito's colors, which everybody tells apart; dashes where there are more lines than colors.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#5b6770")
DASHES = ("-", "--", ":", "-.")
BLUE = COLORS[0]
LEGEND_ROWS = 12


def plot_points(sweep: Sweep, points: Sequence[PointResult], folder: Path) -> str | None:
    """Draw a sweep.

    Returns:
        The file's name in ``folder``, ``heatmap.png`` or ``sweep.png``; None when no trial has a value yet.
    """
    if all(point.interval is None for point in points):
        return None
    if sweep.pbt is not None:
        return _save(lambda figure: _population(figure, sweep, points, folder), folder / "sweep.png", (8, 4.8))
    if len(sweep.space) == 2 and all(isinstance(choice, Grid) for choice in sweep.space.values()):
        return _save(lambda figure: _heat_map(figure, sweep, points), folder / "heatmap.png", (7, 5))
    size = (1.5 + 4.5 * len(sweep.space), 4.5)
    return _save(lambda figure: _panels(figure, sweep, points), folder / "sweep.png", size)


def _save(draw: Any, path: Path, size: tuple[float, float]) -> str:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure)
    figure.savefig(path)
    return path.name


def _heat_map(figure: Any, sweep: Sweep, points: Sequence[PointResult]) -> None:
    """Rows are the first key's values, columns the second's; a cell shows the mean and its interval."""
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
            notes[row][column] = f"{interval.mean:.3f}{bounds}" + ("" if point.status == "done" else "\nnot done")
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
    """Widen the range of the means by the median half interval: what is within the noise looks alike."""
    intervals = [point.interval for point in points if point.interval is not None]
    halves = [(i.high - i.low) / 2 for i in intervals if not math.isnan(i.low)]
    margin = median(halves) if halves else 0.0
    means = [interval.mean for interval in intervals]
    return min(means) - margin, max(means) + margin


def _panels(figure: Any, sweep: Sweep, points: Sequence[PointResult]) -> None:
    """One panel for each key: the metric against it, with intervals; joined when no other key varies."""
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
    hollow = "" if all(point.status == "done" for point in shown) else "; hollow: not done"
    figure.suptitle(f"{sweep.name}\npoints with 95 % intervals{hollow}", fontsize=14)


def _whisker(axes: Any, place: float, point: PointResult) -> None:
    interval, done = point.interval, point.status == "done"
    assert interval is not None
    if not math.isnan(interval.low):
        axes.plot([place, place], [interval.low, interval.high], color=BLUE, alpha=0.4, linewidth=2)
    # Hollow: not trained to the end, so not comparable with the rest.
    axes.plot([place], [interval.mean], "o", color=BLUE, markerfacecolor=BLUE if done else "white", markersize=6)


def _population(figure: Any, sweep: Sweep, points: Sequence[PointResult], folder: Path) -> None:
    """The metric of every member over iterations; a circle where it took over a better one."""
    axes = figure.add_subplot()
    drawn = 0
    for point in points:
        for trial in point.trials:
            records = RunFolder(folder / "trials" / trial.name).read_metrics()
            curve = [(r["iteration"], r[sweep.metric]) for r in records if r.get(sweep.metric) is not None]
            if not curve:
                continue
            label = ", ".join(f"{name} {short(value)}" for name, value in point.keys.items())
            color, dash = COLORS[drawn % len(COLORS)], DASHES[drawn // len(COLORS) % len(DASHES)]
            axes.plot(*zip(*curve, strict=True), dash, color=color, linewidth=1.7, label=label)
            drawn += 1
            for event in trial.lineage:
                after = [value for iteration, value in curve if iteration >= event["iteration"]]
                axes.plot([event["iteration"]], after[:1] or [curve[-1][1]], "o", color=color, fillstyle="none")
    _style(axes, "completed iterations")
    axes.set_ylabel(sweep.metric, fontsize=13)
    axes.set_title(f"{sweep.name} (circles: took over a better member)", fontsize=14)
    if len(points) <= LEGEND_ROWS:
        figure.legend(fontsize=11, frameon=False, loc="outside lower center", ncols=2, title="last keys")


def _style(axes: Any, label: str) -> None:
    axes.set_xlabel(label, fontsize=13)
    axes.tick_params(labelsize=12)
    axes.grid(True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
