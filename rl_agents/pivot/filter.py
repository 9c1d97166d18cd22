"""Selects the turns for training: pivots (PivotRL, equation 5), or random turns; and plots the profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rl_agents.errors import InputError
from rl_agents.traces.store import read_table

if TYPE_CHECKING:
    import pyarrow

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rule:
    """The conditions of a pivot.

    Attributes:
        max_mean: λ_diff (μ̂ < λ_diff); the paper does not publish its value.
        min_variance: larger σ̂² count as above 0.
        at_most: number of hardest turns (lowest μ̂) to keep; 0 keeps all.
    """

    max_mean: float = 0.6
    min_variance: float = 1e-9
    at_most: int = 0


def choose_pivots(mean: Floats, variance: Floats, names: Sequence[str], rule: Rule) -> NDArray[np.bool_]:
    """Return which turns are pivots, [turns] bool. Names break ties at the limit ``at_most``.

    Args:
        mean, variance: μ̂ and population σ̂² of every turn.
    """
    keep: NDArray[np.bool_] = (variance > rule.min_variance) & (mean < rule.max_mean)
    if rule.at_most and keep.sum() > rule.at_most:
        order = sorted(np.flatnonzero(keep), key=lambda i: (mean[i], names[i]))
        keep = np.zeros_like(keep)
        keep[order[: rule.at_most]] = True
    return keep


def choose_at_random(turns: int, count: int, seed: int) -> NDArray[np.bool_]:
    """Return ``count`` random turns, [turns] bool (the paper's random pivots)."""
    keep = np.zeros(turns, dtype=bool)
    keep[np.random.default_rng(seed).permutation(turns)[:count]] = True
    return keep


def read_profile(path: Path) -> tuple[pyarrow.Table, Floats, Floats]:
    """Read a profile: its table, and μ̂ and σ̂² of its turns.

    Raises:
        InputError: no such file, or turns without a profile.
    """
    table = read_table(path)
    if "mean" not in table.column_names:
        raise InputError(f"{path}: turns without a profile; run `run.py pivot profile` first")
    return table, table.column("mean").to_numpy(), table.column("variance").to_numpy()


def plot_profile(mean: Floats, variance: Floats, keep: NDArray[np.bool_], rule: Rule, path: Path, title: str) -> None:
    """Plot every pair (μ̂, σ̂²) as a disc whose area is its number of turns.

    For scores 0 and 1 the discs are on σ² = μ(1 - μ).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), dpi=120, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    line = np.linspace(0, 1, 101)
    axes.plot(line, line * (1 - line), color="#d1d5db", linewidth=1, zorder=1)
    axes.axvspan(0, rule.max_mean, color="#0072b2", alpha=0.06, linewidth=0)
    points, counts = np.unique(np.stack([mean, variance, keep], axis=1).round(6), axis=0, return_counts=True)
    for chosen, color, label in ((0, "#9ca3af", "excluded"), (1, "#0072b2", "pivots")):
        at = points[:, 2] == chosen
        total = int(counts[at].sum())
        area = 30 + 900 * counts[at] / len(mean)
        axes.scatter(
            points[at, 0],
            points[at, 1],
            s=area,
            color=color,
            alpha=0.8,
            label=f"{label}: {total} turns",
            zorder=2 + chosen,
        )
    uniform = variance <= rule.min_variance
    for place, side, inward in ((0.0, "left", 1), (1.0, "right", -1)):
        share = float(np.mean(uniform & (np.abs(mean - place) < 1e-9)))
        axes.annotate(
            f"{share:.0%} always {place:.0f}",
            (place, 0),
            xytext=(22 * inward, 0),  # next to the disc and below the curve
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=13,
        )
    axes.set_title(f"{title}\narea: number of turns; {uniform.mean():.0%} are uninformative (σ² = 0)", fontsize=14)
    axes.set_xlabel("mean score μ of the initial policy; shaded: below λ", fontsize=13)
    axes.set_ylabel("variance σ² of the scores", fontsize=13)
    axes.set_ylim(-0.02, max(0.3, float(variance.max()) * 1.15 if len(variance) else 0.3))
    axes.set_xlim(-0.06, 1.06)
    axes.tick_params(labelsize=12)
    axes.grid(True, color="#e5e7eb")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=12.5, frameon=False, loc="outside lower center", ncols=2, markerscale=0.5)
    figure.savefig(path)
