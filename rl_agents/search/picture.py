"""A picture of one task's search: which states it met, how it scored them, and how its trajectories ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rl_agents.search.explorer import Explorer
from rl_agents.search.tree import Mark

#: (outcome, marker, colour, legend) of states that were not expanded; colours of Okabe and Ito, shapes besides.
ENDS = (
    ("success", "*", "#009e73", "solved"),
    ("failure", "X", "#d55e00", "not solved"),
    ("closed", "s", "#6b7280", "closed (n = 0)"),
    ("skipped", "|", "#8b94a0", "action executed before"),
    ("open", ".", "#8b94a0", "not visited"),
)
#: Inches at most: what is wider cannot be read as a thumbnail.
WIDEST, TALLEST = 15.0, 15.0
#: Inches from which on all ends have room in one line of the legend.
LEGEND_WIDTH = 10.5
#: Points of a state's diameter, where there is room, and below which its n is not written.
DOT, WRITTEN = 17.0, 11.0


def draw_search(explorer: Explorer, path: Path) -> bool:
    """Draw the last task that was left, else the task with the largest tree so far.

    Returns:
        False when nothing has been expanded yet, and nothing was drawn.
    """
    task_id, marks = explorer.last_tree
    if not marks and explorer.searches:
        search = max(explorer.searches, key=lambda search: len(search.marks))
        task_id, marks = search.task_id, search.marks
    if not any(mark.rollouts for mark in marks):
        return False
    draw_tree(marks, path, f"Search of {task_id}")
    return True


def draw_tree(marks: Sequence[Mark], path: Path, title: str) -> None:
    """Draw a tree; write a PNG.

    Args:
        marks: parents before their children.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns, depth = tree_columns(marks), max(mark.depth for mark in marks)
    width = min(WIDEST, max(7.5, 0.16 * (max(columns) + 1)))
    height = min(TALLEST, 2.2 + 0.75 * depth)
    figure = Figure(figsize=(width, height), dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for mark, column in zip(marks, columns, strict=True):
        if mark.parent >= 0:
            parent = marks[mark.parent]
            axes.plot([columns[mark.parent], column], [parent.depth, mark.depth], color="#c4c9d0", lw=0.8, zorder=1)
    _draw_ends(axes, marks, columns)
    per_column = 60.0 * width / (max(columns) + 1)
    _draw_expanded(figure, axes, marks, columns, max(6.0, min(DOT, 0.9 * per_column * _closest(marks, columns))))
    axes.set_title(f"{title}\nnumber: siblings n(s) sampled in a state; colour: its score S(s)", fontsize=14)
    axes.set_ylabel("depth t (1: the start)", fontsize=13)
    axes.set_yticks(range(1, depth + 1))
    axes.tick_params(labelsize=12)
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    columns_of_legend = 5 if width > LEGEND_WIDTH else 3  # a wider one would be cut at both sides
    figure.legend(fontsize=12, frameon=False, loc="outside lower center", ncols=columns_of_legend, markerscale=1.3)
    figure.savefig(path)


def _closest(marks: Sequence[Mark], columns: Sequence[float]) -> float:
    """Columns between the two expanded states of one depth that stand closest."""
    places = sorted((mark.depth, column) for mark, column in zip(marks, columns, strict=True) if mark.rollouts)
    return min((b[1] - a[1] for a, b in pairwise(places) if a[0] == b[0]), default=9.0)


def tree_columns(marks: Sequence[Mark]) -> list[float]:
    """Horizontal places: leaves side by side in depth-first order, a parent in the middle of its children."""
    children: list[list[int]] = [[] for _ in marks]
    for index, mark in enumerate(marks):
        if mark.parent >= 0:
            children[mark.parent].append(index)
    columns = [0.0] * len(marks)
    leaves = 0
    stack = [0]
    order: list[int] = []
    while stack:
        index = stack.pop()
        order.append(index)
        stack.extend(reversed(children[index]))
        if not children[index]:
            columns[index], leaves = float(leaves), leaves + 1
    for index in reversed(order):
        if children[index]:
            columns[index] = (columns[children[index][0]] + columns[children[index][-1]]) / 2
    return columns


def _draw_ends(axes: Any, marks: Sequence[Mark], columns: Sequence[float]) -> None:
    for outcome, marker, colour, label in ENDS:
        found = [i for i, mark in enumerate(marks) if mark.outcome == outcome and not mark.rollouts]
        if found:
            places = [columns[i] for i in found], [marks[i].depth for i in found]
            axes.scatter(*places, marker=marker, color=colour, s=40, zorder=2, label=f"{label} ({len(found)})")


def _draw_expanded(figure: Any, axes: Any, marks: Sequence[Mark], columns: Sequence[float], size: float) -> None:
    found = [i for i, mark in enumerate(marks) if mark.rollouts]
    scores = [marks[i].score or 0.0 for i in found]
    dots = axes.scatter(
        [columns[i] for i in found], [marks[i].depth for i in found],
        c=scores, cmap="viridis", vmin=0.0, vmax=1.0, s=size**2, zorder=3, edgecolors="#374151", linewidths=0.6,
    )  # fmt: skip
    for i, score in zip(found, scores, strict=True) if size >= WRITTEN else ():
        dark = score < 0.6
        axes.annotate(
            str(marks[i].rollouts), (columns[i], marks[i].depth), ha="center", va="center_baseline", zorder=4,
            fontsize=0.55 * size, color="white" if dark else "black",
        )  # fmt: skip
    bar = figure.colorbar(dots, ax=axes, shrink=0.8, pad=0.01)
    bar.set_label("score S(s)", fontsize=13)
    bar.ax.tick_params(labelsize=12)
