"""Step advantages and learning curves in exact worlds, with equal environment steps.

    python -m benchmarks.exact_worlds                                          # baselines and the chain as a critic
    python -m benchmarks.exact_worlds --methods searches --seeds 6 --name exact_worlds_searches
    python -m benchmarks.exact_worlds --methods parts --worlds chain aliased --seeds 30 --name exact_worlds_parts

``--methods`` takes names, or ``main``, ``lambda``, ``parts``, ``searches``. Searches are those of the product and cost
a hundred times as much, so use few seeds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exact_worlds.arms import ARMS, SETS, Arm, quality
from benchmarks.exact_worlds.world import World
from benchmarks.exact_worlds.worlds import WORLDS
from benchmarks.report import RESULTS, write_figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--methods", nargs="+", default=["main"], choices=[*SETS, *ARMS], metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--lr", type=float, help="length of an optimizer step (default: the method's)")
    parser.add_argument("--name", default="exact_worlds")
    parser.add_argument("--add", action="store_true", help="keep the rows on file, and measure the others")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds after which no row is started")
    args = parser.parse_args()
    command = "python -m benchmarks.exact_worlds " + " ".join(sys.argv[1:])
    known = kept(args.name, args.seeds) if args.add else {}
    figures: dict[str, dict[str, Any]] = known.pop("worlds", {})
    began = time.monotonic()
    for name, arm in [(name, arm) for name in args.worlds for word in args.methods for arm in SETS.get(word, (word,))]:
        if arm in figures.setdefault(name, {}):
            continue
        if time.monotonic() - began > args.limit:
            print(f"not started after {args.limit:g} s: {name}, {arm} and all later rows; --add continues", flush=True)
            break
        figures[name][arm] = row(WORLDS[name](), ARMS[arm], args.seeds, args.iterations, args.lr)
        print(name, arm, {k: v for k, v in figures[name][arm].items() if not isinstance(v, list)}, flush=True)
        write_figures(
            args.name, known.get("command", command.strip()), {**known, "seeds": args.seeds, "worlds": figures}
        )
    for column in ("mean", "final", "step_cosine", "mean_cosine", "cosine"):
        print(f"\n{column}\n{table(figures, column)}")
    plot(figures, RESULTS / f"{args.name}.png", arms_of(figures), f"exact worlds, {args.seeds} seeds")


def kept(name: str, seeds: int) -> dict[str, Any]:
    """Return the results on file, or nothing; rows with different seeds are not mixed.

    Raises:
        SystemExit: the file has another number of seeds.
    """
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if found["seeds"] != seeds:
        raise SystemExit(
            f"{path.name} has {found['seeds']} seeds, not {seeds}: --seeds {found['seeds']}, or another --name"
        )
    return found


def row(world: World, arm: Arm, seeds: int, iterations: int, lr: float | None = None) -> dict[str, Any]:
    """Return all numbers of an arm in a world.

    ``mean`` is the mean success of the curve after its start, ``final`` that of the last policies. ``below`` is the
    share of seeds that end below the start. ``error`` is half a 95 % interval of each point. ``closed``: see `Curve`.
    """
    began = time.process_time()
    found = arm.curve(world, seeds=seeds, iterations=iterations, lr=lr)
    seconds = time.process_time() - began
    success = found.success
    averages = success[1:].mean(axis=0)
    figures: dict[str, Any] = {
        "start": success[0].mean(),
        "mean": averages.mean(),
        "mean_error": 1.96 * averages.std(ddof=1) / np.sqrt(seeds),
        "final": success[-1].mean(),
        "final_error": 1.96 * success[-1].std(ddof=1) / np.sqrt(seeds),
        "worst": success[-1].min(),
        "below": float(np.mean(success[-1] < success[0] - 0.005)),
        "closed": found.closed,
        "cpu_s": seconds,
        **quality(world, arm, runs=seeds),
    }
    error = 1.96 * success.std(axis=1, ddof=1) / np.sqrt(seeds)
    curves = {"steps": found.steps, "curve": success.mean(axis=1), "error": error}
    return {
        **{key: float(f"{value:.4g}") for key, value in figures.items() if not np.isnan(value)},
        **{key: [float(f"{value:.4g}") for value in values] for key, values in curves.items()},
    }


#: world -> arm -> numbers, as on file.
Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]


def arms_of(figures: Figures) -> list[str]:
    return list(dict.fromkeys(arm for rows in figures.values() for arm in rows))


def table(figures: Figures, column: str) -> str:
    """Return a Markdown table of a number, with a row per arm and a column per world."""
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
    """Plot a panel per world: success over thousand environment steps, mean over seeds with 95 % interval."""
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


if __name__ == "__main__":
    main()
