"""Step advantages and learning curves in exact worlds, with equal environment steps.

    python -m benchmarks.exact_worlds                                          # baselines and the chain as a critic
    python -m benchmarks.exact_worlds --methods parts --worlds chain aliased --seeds 30 --name exact_worlds_parts

``--methods`` takes names, or ``main``, ``lambda``, ``parts``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.exact_worlds.arms import ARMS, SETS, Arm, step_cosine
from benchmarks.exact_worlds.world import World
from benchmarks.exact_worlds.worlds import WORLDS
from benchmarks.report import RESULTS, command_line, drawn, markdown, write_figures


def main() -> None:
    parser = command_line(__doc__, {"seeds": 100, "iterations": 40, "name": "exact_worlds"})
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--methods", nargs="+", default=["main"], choices=[*SETS, *ARMS], metavar="METHOD")
    parser.add_argument("--lr", type=float, help="length of an optimizer step (default: the method's)")
    args = parser.parse_args()
    command = " ".join(["python -m benchmarks.exact_worlds", *sys.argv[1:]])
    figures: dict[str, dict[str, Any]] = {}
    for name, arm in [(name, arm) for name in args.worlds for word in args.methods for arm in SETS.get(word, (word,))]:
        own = figures.setdefault(name, {})[arm] = row(WORLDS[name](), ARMS[arm], args.seeds, args.iterations, args.lr)
        print(name, arm, {k: v for k, v in own.items() if not isinstance(v, list)}, flush=True)
        write_figures(args.name, command, {"seeds": args.seeds, "worlds": figures})
    for column in ("mean", "final", "step_cosine"):
        print(f"\n{column}\n{table(figures, column)}")
    plot(figures, args.name, args.seeds)


def row(world: World, arm: Arm, seeds: int, iterations: int, lr: float | None = None) -> dict[str, Any]:
    """Return all numbers of an arm in a world; errors are half a 95 % interval.

    ``mean`` is the mean success of the curve after its start, ``final`` that of the last policies. ``below`` is the
    share of seeds that end below the start.
    """
    began = time.process_time()
    found = arm.curve(world, seeds=seeds, iterations=iterations, lr=lr)
    seconds, success = time.process_time() - began, found.success
    averages = success[1:].mean(axis=0)
    figures: dict[str, Any] = {
        "start": success[0].mean(),
        "mean": averages.mean(),
        "mean_error": 1.96 * averages.std(ddof=1) / np.sqrt(seeds),
        "final": success[-1].mean(),
        "final_error": 1.96 * success[-1].std(ddof=1) / np.sqrt(seeds),
        "worst": success[-1].min(),
        "below": float(np.mean(success[-1] < success[0] - 0.005)),
        "cpu_s": seconds,
        "step_cosine": step_cosine(world, arm, runs=seeds),
    }
    error = 1.96 * success.std(axis=1, ddof=1) / np.sqrt(seeds)
    curves = {"steps": found.steps, "curve": success.mean(axis=1), "error": error}
    return {
        **{key: float(f"{value:.4g}") for key, value in figures.items()},
        **{key: [float(f"{value:.4g}") for value in values] for key, values in curves.items()},
    }


#: world -> arm -> numbers, as on file.
Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]


def arms_of(figures: Figures) -> list[str]:
    return list(dict.fromkeys(arm for rows in figures.values() for arm in rows))


def table(figures: Figures, column: str) -> str:
    rows = []
    for arm in arms_of(figures):
        found = [own[arm][column] for own in figures.values()]
        rows.append([arm, *(f"{value:.2f}" for value in [*found, np.mean(found)])])
    return markdown(["", *figures, "mean"], rows)


def plot(figures: Figures, name: str, seeds: int) -> None:
    """Plot a panel per world: success over thousand environment steps, mean over seeds with 95 % interval."""
    rows = -(-len(figures) // 4)
    keys: dict[str, Any] = {"figsize": (15, 3.2 * rows), "squeeze": False, "dpi": 90}
    with drawn(RESULTS / f"{name}.png", rows, 4, **keys) as (figure, axes):
        for axis, (world, found) in zip(axes.flat, figures.items(), strict=False):
            for number, (arm, own) in enumerate(found.items()):
                steps, mean, error = (np.array(own[part]) for part in ("steps", "curve", "error"))
                axis.plot(steps / 1000, mean, color=f"C{number}", label=arm, linewidth=1.4)
                axis.fill_between(steps / 1000, mean - error, mean + error, color=f"C{number}", alpha=0.15)
            axis.set(title=world, ylim=(0, 1))
            axis.grid(alpha=0.3)
        for axis in axes.flat[len(figures) :]:
            axis.axis("off")
        handles, labels = axes.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="lower right", fontsize="small", ncols=2)
        figure.suptitle(f"exact worlds, {seeds} seeds")
        figure.supxlabel("thousand environment steps")


if __name__ == "__main__":
    main()
