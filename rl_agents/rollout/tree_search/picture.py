"""A picture of one task's search: visited states, their scores, and the ends of its trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rl_agents.rollout.tree_search.explorer import Explorer
from rl_agents.rollout.tree_search.tree import Mark

#: (outcome, marker, color, legend) of states that were not expanded; colors of Okabe and Ito.
ENDS = (
    ("success", "*", "#009e73", "solved"),
    ("failure", "X", "#d55e00", "not solved"),
    ("closed", "s", "#6b7280", "closed (n = 0)"),
    ("skipped", "|", "#8b94a0", "action executed before"),
    ("open", ".", "#8b94a0", "not visited"),
)
#: Limits of width and height, and the width of a column, in inches; fonts grow with the width, for thumbnails.
NARROWEST, WIDEST, TALLEST, COLUMN = 7.5, 11.0, 15.0, 0.11
#: Columns of a leaf and of an expanded state, and free columns between the subtrees of two siblings.
LEAF, STATE, GAP = 1.0, 2.2, 0.5
#: Maximum diameter of a state in points, the minimum for writing its n, and the maximum diameter of an end.
DOT, WRITTEN, END = 17.0, 11.0, 6.3


def draw_search(explorer: Explorer, path: Path) -> bool:
    """Draw the last completed task, or else the task with the largest tree so far.

    Returns:
        False if nothing has been expanded yet, so that nothing was drawn.
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
    from matplotlib.figure import Figure

    columns, depth = tree_columns(marks), max(mark.depth for mark in marks)
    width = min(WIDEST, max(NARROWEST, COLUMN * (max(columns) + 1)))
    larger = width / NARROWEST
    height = min(TALLEST, (2.4 + 0.62 * depth) * larger)
    figure = Figure(figsize=(width, height), dpi=100, facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for mark, column in zip(marks, columns, strict=True):
        if mark.parent >= 0:
            parent = marks[mark.parent]
            axes.plot([columns[mark.parent], column], [parent.depth, mark.depth], color="#c4c9d0", lw=0.8, zorder=1)
    per_column = 60.0 * width / (max(columns) + 1)
    _draw_ends(axes, marks, columns, min(END, per_column))
    size = max(6.0, min(DOT, 0.9 * per_column * _closest(marks, columns)))
    bar = figure.colorbar(_draw_expanded(axes, marks, columns, size), ax=axes, shrink=0.8, pad=0.01, aspect=30)
    bar.set_label("score S(s)", fontsize=13 * larger)
    bar.ax.tick_params(labelsize=12 * larger)
    what = "number: siblings n(s) sampled in a state; color: its score S(s)"
    axes.set_title(f"{title}\n{what if size >= WRITTEN else 'color of a state: its score S(s)'}", fontsize=14 * larger)
    axes.set_ylabel("depth t (1: the start)", fontsize=13 * larger)
    axes.set_yticks(range(1, depth + 1))
    axes.tick_params(labelsize=12 * larger)
    axes.set_ylim(depth + 0.5, 0.5)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    figure.legend(
        fontsize=12 * larger, frameon=False, loc="outside lower center", ncols=3, markerscale=1.3 * larger,
        columnspacing=1.2, handletextpad=0.3,
    )  # fmt: skip
    figure.savefig(path)


def _closest(marks: Sequence[Mark], columns: Sequence[float]) -> float:
    """Return the columns between the two closest expanded states of one depth."""
    places = sorted((mark.depth, column) for mark, column in zip(marks, columns, strict=True) if mark.rollouts)
    return min((b[1] - a[1] for a, b in pairwise(places) if a[0] == b[0]), default=9.0)


def tree_columns(marks: Sequence[Mark]) -> list[float]:
    """Return horizontal positions: subtrees as close as their outlines allow, parents centered above their children.

    A long path is therefore no wider than its widest depth (Reingold and Tilford, "Tidier drawings of trees", 1981).
    """
    children: list[list[int]] = [[] for _ in marks]
    for index, mark in enumerate(marks):
        if mark.parent >= 0:
            children[mark.parent].append(index)
    shifts = [0.0] * len(marks)
    outlines: list[tuple[list[float], list[float]]] = [([], [])] * len(marks)
    for index in reversed(range(len(marks))):  # children come after their parents
        left, right = _side_by_side(children[index], outlines, shifts)
        ends = [shifts[child] for child in (children[index] or [index])]
        middle = (ends[0] + ends[-1]) / 2 if children[index] else 0.0
        for child in children[index]:
            shifts[child] -= middle
        half = (STATE if marks[index].rollouts else LEAF) / 2
        outlines[index] = [-half, *(x - middle for x in left)], [half, *(x - middle for x in right)]
    columns = [0.0] * len(marks)
    for index, mark in enumerate(marks):
        columns[index] = (columns[mark.parent] if mark.parent >= 0 else 0.0) + shifts[index]
    lowest = min(columns)
    return [column - lowest for column in columns]


def _side_by_side(
    children: Sequence[int], outlines: Sequence[tuple[list[float], list[float]]], shifts: list[float]
) -> tuple[list[float], list[float]]:
    """Set the children's ``shifts``, each as close to the previous one as all depths allow; return their outline."""
    left, right = list[float](), list[float]()
    for child in children:
        low, high = outlines[child]
        apart = [r - own + (GAP if depth else 0.0) for depth, (r, own) in enumerate(zip(right, low, strict=False))]
        shifts[child] = shift = max(apart, default=0.0)
        left += [shift + x for x in low[len(left) :]]
        right[: len(high)] = [shift + x for x in high]
    return left, right


def _draw_ends(axes: Any, marks: Sequence[Mark], columns: Sequence[float], size: float) -> None:
    for outcome, marker, color, label in ENDS:
        found = [i for i, mark in enumerate(marks) if mark.outcome == outcome and not mark.rollouts]
        if found:
            places = [columns[i] for i in found], [marks[i].depth for i in found]
            axes.scatter(*places, marker=marker, color=color, s=size**2, zorder=2, label=f"{label} ({len(found)})")


def _draw_expanded(axes: Any, marks: Sequence[Mark], columns: Sequence[float], size: float) -> Any:
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
    return dots
