"""The plots of a run: titles, axes with units, all text within the picture, no legend over data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from rl_agents.pivot import PivotRule, plot_profile
from rl_agents.reporting.views import plot_success


def success(path: Path) -> None:
    points = [{"iteration": i, "rollout/success_rate": i / 20} for i in range(21)]
    for at in (0, 10, 20):
        points[at] |= {"eval/success_rate": at / 25, "eval/success_low": 0.0, "eval/success_high": 0.95}
        points[at] |= {
            "collapse_monitor/success": 0.5,
            "collapse_monitor/success_se": 0.1,
            "collapse_monitor/start": 0.4,
        }
    plot_success(points, path / "success.png", "grpo on guess_numbers")


def profile(path: Path) -> None:
    mean = np.array([0.0, 0.25, 0.5, 1.0])
    keep = np.array([False, True, True, False])
    plot_profile(mean, mean * (1 - mean), keep, PivotRule(), path / "profile.png", "pivots of the help desk")


@pytest.mark.parametrize("draw", [success, profile])
def test_a_picture_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, draw: Callable[[Path], None]) -> None:
    drawn: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *args: (drawn.append(self), save(self, *args)))
    draw(tmp_path)
    (figure,) = drawn
    main = figure.axes[0]
    assert main.get_title() or figure.get_suptitle()
    assert main.get_ylabel() and (main.get_xlabel() or not main.get_xticks().size)
    assert all(axes.get_ylabel() for axes in figure.axes)  # color bars have one, too
    assert not [axes for axes in figure.axes if axes.get_legend() is not None]
    for legend in figure.legends:  # next to the axes, not over them
        box = legend.get_window_extent()
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    pixels = figure.get_size_inches() * figure.dpi
    for text in (text for text in texts(figure) if text not in ticks(figure)):
        box = text.get_window_extent()
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= pixels[0] + 1 and box.y1 <= pixels[1] + 1, text.get_text()


def texts(figure: Figure) -> list[Any]:
    """Return the titles and the labels of axes, ticks and legends that are shown."""
    found: list[Any] = [figure._suptitle] if figure.get_suptitle() else []
    found += [part for axes in figure.axes for part in (axes.title, axes.xaxis.label, axes.yaxis.label)]
    found += ticks(figure)
    found += [text for legend in figure.legends for text in legend.get_texts()]
    return [text for text in found if text.get_text() and text.get_visible()]


def ticks(figure: Figure) -> list[Any]:
    """Return the tick labels of the axes, including those outside of their limits."""
    return [label for axes in figure.axes for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
