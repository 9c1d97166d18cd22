"""Pictures of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def plot_success(records: Sequence[Mapping[str, Any]], path: Path, title: str) -> bool:
    """Draw success over iterations: training rollouts as a line, evaluations as points with their 95 % band, and what
    the guard makes of the plain policy, with two standard errors and its start.

    Args:
        records: lines of metrics.jsonl.
        path: the PNG to write.
        title: what was trained on what.

    Returns:
        False when the records hold no success rate, and nothing was drawn.
    """
    training = [
        (r["iteration"], r["rollout/success_rate"]) for r in records if r.get("rollout/success_rate") is not None
    ]
    evaluations = [r for r in records if r.get("eval/success_rate") is not None]
    if not training and not evaluations:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8, 4.8), dpi=120, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if training:
        axes.plot(*zip(*training, strict=True), color="#6b7280", linewidth=1.2, label="training rollouts")
    _draw_guard(axes, [r for r in records if r.get("guard/success") is not None])
    if evaluations:
        iterations = [r["iteration"] for r in evaluations]
        low, mean, high = ([r[f"eval/success_{part}"] for r in evaluations] for part in ("low", "rate", "high"))
        axes.fill_between(iterations, low, high, color="#0072b2", alpha=0.15, linewidth=0, label="95 % interval")
        axes.plot(iterations, mean, "o-", color="#0072b2", linewidth=2, markersize=5, label="test tasks")
        for index in {0, len(mean) - 1}:
            axes.annotate(
                f"{mean[index]:.2f}", (iterations[index], mean[index]), xytext=(0, 9),
                textcoords="offset points", ha="center", fontsize=13, color="#00476e",
            )  # fmt: skip
    axes.set_title(title, fontsize=15)
    axes.set_xlabel("completed iterations", fontsize=14)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("success (share of episodes)", fontsize=14)
    axes.set_ylim(0, 1.02)
    axes.margins(x=0.04)
    axes.tick_params(labelsize=13)
    axes.grid(True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=12.5, frameon=False, loc="outside lower center", ncols=3)
    figure.savefig(path)
    return True


def _draw_guard(axes: Any, records: Sequence[Mapping[str, Any]]) -> None:
    if not records:
        return
    iterations = [r["iteration"] for r in records]
    mean, error = ([r[f"guard/success{part}"] for r in records] for part in ("", "_se"))
    low, high = ([m + side * e for m, e in zip(mean, error, strict=True)] for side in (-2, 2))
    axes.fill_between(iterations, low, high, color="#d55e00", alpha=0.12, linewidth=0)
    axes.plot(iterations, mean, color="#d55e00", linewidth=1.6, label="plain policy, training tasks (guard)")
    axes.axhline(records[-1]["guard/start"], color="#d55e00", linewidth=1, linestyle=":", label="its start")
