"""A picture of one task's search: which states it met, how it scored them, and how its trajectories ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rl_agents.search.explorer import Explorer
from rl_agents.search.tree import Mark

#: (outcome, marker, colour, legend) of states that were not expanded.
ENDS = (
    ("success", "*", "#15803d", "solved"),
    ("failure", "X", "#b91c1c", "not solved"),
    ("closed", "s", "#6b7280", "closed (n = 0)"),
    ("skipped", "|", "#9ca3af", "action executed before"),
    ("open", ".", "#9ca3af", "not visited"),
)


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
    draw_tree(marks, path, f"search of {task_id}: depth downwards, n siblings in each state, colour is its score S")
    return True


def draw_tree(marks: Sequence[Mark], path: Path, title: str) -> None:
    """Draw a tree; write a PNG.

    Args:
        marks: parents before their children.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = tree_columns(marks)
    width = min(40.0, max(8.0, 0.16 * (max(columns) + 1)))
    height = 1.6 + 1.1 * max(mark.depth for mark in marks)
    figure = Figure(figsize=(width, height), dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for mark, column in zip(marks, columns, strict=True):
        if mark.parent >= 0:
            parent = marks[mark.parent]
            axes.plot([columns[mark.parent], column], [parent.depth, mark.depth], color="#d1d5db", lw=0.8, zorder=1)
    _draw_ends(axes, marks, columns)
    _draw_expanded(figure, axes, marks, columns)
    axes.set_title(title, fontsize=11)
    axes.set_ylabel("depth t", fontsize=11)
    axes.set_yticks(range(1, max(mark.depth for mark in marks) + 1))
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.legend(fontsize=9, frameon=False, loc="lower right")
    figure.savefig(path)


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


def _draw_expanded(figure: Any, axes: Any, marks: Sequence[Mark], columns: Sequence[float]) -> None:
    found = [i for i, mark in enumerate(marks) if mark.rollouts]
    scores = [marks[i].score or 0.0 for i in found]
    dots = axes.scatter(
        [columns[i] for i in found], [marks[i].depth for i in found],
        c=scores, cmap="viridis", vmin=0.0, vmax=1.0, s=170, zorder=3, edgecolors="#374151", linewidths=0.6,
    )  # fmt: skip
    for i, score in zip(found, scores, strict=True):
        dark = score < 0.6
        axes.annotate(
            str(marks[i].rollouts), (columns[i], marks[i].depth), ha="center", va="center", fontsize=8, zorder=4,
            color="white" if dark else "black",
        )  # fmt: skip
    figure.colorbar(dots, ax=axes, label="score S", shrink=0.8, pad=0.01)
