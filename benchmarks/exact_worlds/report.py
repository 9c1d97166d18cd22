"""Tables and pictures of what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: world -> arm -> figures, as in the results' file.
Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]


def arms_of(figures: Figures) -> list[str]:
    """Arms in the order in which they first occur."""
    return list(dict.fromkeys(arm for rows in figures.values() for arm in rows))


def table(figures: Figures, column: str) -> str:
    """A line per arm and a column per world, in Markdown; mean success over the whole curve, or another figure."""
    worlds = list(figures)
    lines = ["| | " + " | ".join(worlds) + " | mean |", "|---|" + "---|" * (len(worlds) + 1)]
    for arm in arms_of(figures):
        found = [figures[world].get(arm, {}).get(column) for world in worlds]
        known = [value for value in found if value is not None]
        cells = ["-" if value is None else f"{value:.2f}" for value in found]
        mean = f"{np.mean(known):.2f}" if len(known) == len(found) else "-"
        lines.append(f"| {arm} | " + " | ".join(cells) + f" | {mean} |")
    return "\n".join(lines)


def plot(figures: Figures, path: Path, arms: Sequence[str], title: str) -> None:
    """A panel per world: success over thousand environment steps, the mean of the seeds with its 95 % interval."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(figures) // 4)
    figure, axes = pyplot.subplots(rows, 4, figsize=(15, 3.2 * rows), squeeze=False)
    for axis, (world, found) in zip(axes.flat, figures.items(), strict=False):
        for number, arm in enumerate(arms):
            if "curve" not in found.get(arm, {}):
                continue
            row = found[arm]
            steps, mean, error = (np.array(row[name]) for name in ("steps", "curve", "error"))
            axis.plot(steps / 1000, mean, color=f"C{number}", label=arm, linewidth=1.4)
            axis.fill_between(steps / 1000, mean - error, mean + error, color=f"C{number}", alpha=0.15)
        axis.set(title=world, ylim=(0, 1))
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(figures) :]:
        axis.axis("off")
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes.flat), key=lambda found: len(found[1]))
    figure.legend(handles, labels, loc="lower right", fontsize="small", ncols=2)
    figure.suptitle(title)
    figure.supxlabel("thousand environment steps")
    figure.tight_layout()
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
