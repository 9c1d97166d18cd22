"""Step advantages and learning curves in exact worlds, with equal environment steps.

    python -m benchmarks.exact_worlds                                          # baselines and the chain as a critic
    python -m benchmarks.exact_worlds --methods searches --seeds 8 --iterations 30 --name exact_worlds_searches

``--methods`` takes names of arms, or ``main``, ``lambda``, ``searches``. Searches are those of the product and cost a
hundred times as much, so use few seeds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exact_worlds.learn import Curve, SearchMethod, budget_of, learn, learn_search
from benchmarks.exact_worlds.methods import (
    Maker,
    chain_of,
    gigpo_advantages,
    grpo_advantages,
    hgpo_advantages,
    memoryless,
    steppo,
)
from benchmarks.exact_worlds.walks import Budget, Sampler
from benchmarks.exact_worlds.world import World, policy, values
from benchmarks.exact_worlds.worlds import WORLDS
from benchmarks.report import RESULTS, command_line, drawn, markdown, write_figures

#: Length of an optimizer step with one update per iteration, and with one update per tick.
LR, TICK_LR = 1.0, 0.3
#: Iterations with the same policy before advantages are judged; those before the last fill memories.
ITERATIONS = 4


@dataclass(frozen=True)
class Arm:
    """A method from whole episodes, or a search."""

    method: Maker | SearchMethod

    def curve(self, world: World, *, seeds: int, iterations: int) -> Curve:
        if isinstance(self.method, SearchMethod):
            return learn_search(world, self.method, lr=TICK_LR, seeds=seeds, iterations=iterations)
        return learn(world, self.method, lr=LR, seeds=seeds, iterations=iterations)


def replayed(lam: float, **keys: Any) -> Arm:
    return Arm(chain_of(lam, imitate=0.3, bounded=True, clipped=True, **keys))


SETS: dict[str, dict[str, Arm]] = {
    "main": {
        "grpo": Arm(memoryless(grpo_advantages)),
        "gigpo": Arm(memoryless(gigpo_advantages)),
        "hgpo": Arm(memoryless(hgpo_advantages)),
        "steppo": Arm(steppo),
        **{f"chain λ={lam:g}": Arm(chain_of(lam)) for lam in (0, 0.5, 0.9, 0.95, 1)},
        "chain λ=0.95, solved again": Arm(chain_of(0.95, imitate=0.3)),
    },
    # with replay as in the product
    "lambda": {
        "grpo": Arm(memoryless(grpo_advantages)),
        **{f"again, λ={lam:g}": replayed(lam) for lam in (0.5, 0.7, 0.8, 0.9)},
        **{f"again, λ={lam:g}, corrected": replayed(lam, corrected=2.0) for lam in (0.5, 0.7)},
        "again, bounded, clipped": replayed(0.95),
    },
    "searches": {
        "3spo": Arm(SearchMethod()),
        "3spo, 4 paths": Arm(SearchMethod({"search_max_finished": 4})),
        "3spo, w/o paths": Arm(SearchMethod({"path_weight": 0.0})),
        "published": Arm(SearchMethod({"reading": "published"})),
    },
}
ARMS = {name: arm for arms in SETS.values() for name, arm in arms.items()}
#: world -> arm -> numbers, as on file.
Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]


def main() -> None:
    parser = command_line(__doc__, {"seeds": 100, "iterations": 40, "name": "exact_worlds"})
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--methods", nargs="+", default=["main"], choices=[*SETS, *ARMS], metavar="METHOD")
    args = parser.parse_args()
    figures: dict[str, dict[str, Any]] = {}
    for name in args.worlds:
        for arm in [arm for word in args.methods for arm in SETS.get(word, (word,))]:
            figures.setdefault(name, {})[arm] = row(WORLDS[name](), ARMS[arm], args.seeds, args.iterations)
            print(name, arm, {k: v for k, v in figures[name][arm].items() if not isinstance(v, list)}, flush=True)
            command = f"python -m benchmarks.exact_worlds {' '.join(sys.argv[1:])}".strip()
            write_figures(args.name, command, {"seeds": args.seeds, "worlds": figures})
    for column in ("mean", "final", "step_cosine"):
        print(f"\n{column}\n{table(figures, column)}")
    plot(figures, RESULTS / f"{args.name}.png", f"exact worlds, {args.seeds} seeds")


def row(world: World, arm: Arm, seeds: int, iterations: int) -> dict[str, Any]:
    """Return all numbers of an arm in a world.

    ``mean`` is the mean success of the curve after its start, ``final`` that of the last policies. ``below`` is the
    share of seeds that end below the start. ``error`` is half a 95 % interval of each point. ``closed``: see `Curve`.
    """
    began = time.process_time()
    found = arm.curve(world, seeds=seeds, iterations=iterations)
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
        "closed": found.closed,
        "cpu_s": seconds,
    }
    if not isinstance(arm.method, SearchMethod):
        figures["step_cosine"] = step_cosine(world, arm.method, runs=seeds)
    error = 1.96 * success.std(axis=1, ddof=1) / np.sqrt(seeds)
    curves = {"steps": found.steps, "curve": success.mean(axis=1), "error": error}
    return {
        **{key: float(f"{value:.4g}") for key, value in figures.items()},
        **{key: [float(f"{value:.4g}") for value in values] for key, values in curves.items()},
    }


def step_cosine(world: World, make: Maker, *, runs: int, seed: int = 0) -> float:
    """Return the cosine of a method's and the exact advantages over all steps, under the world's first policy."""
    first = policy(world, world.weights[None])
    chosen, budget = np.repeat(first, runs, axis=0), Budget(budget_of(world), np.zeros(runs))
    method, generator = make(world, runs), np.random.default_rng(seed)
    for _ in range(ITERATIONS):
        budget.left[:] = budget.steps  # every iteration has samples
        batch = method(Sampler(world, chosen, generator), budget)
    steps, found = batch.steps, batch.advantages
    true = values(world, first).advantages[:, 0][steps.time, steps.state, steps.action]
    length = float(np.linalg.norm(found) * np.linalg.norm(true))
    return float(found @ true) / length if length else 0.0


def table(figures: Figures, column: str) -> str:
    """Return a Markdown table of a number, with a row per arm and a column per world."""
    rows = []
    for arm in dict.fromkeys(arm for own in figures.values() for arm in own):
        found = [own.get(arm, {}).get(column) for own in figures.values()]
        known = [value for value in found if value is not None]
        mean = f"{np.mean(known):.2f}" if len(known) == len(found) else "-"
        rows.append((arm, *("-" if value is None else f"{value:.2f}" for value in found), mean))
    return markdown(("", *figures, "mean"), rows)


def plot(figures: Figures, path: Path, title: str) -> None:
    """Plot a panel per world: success over thousand environment steps, mean over seeds with 95 % interval."""
    rows = -(-len(figures) // 4)
    with drawn(path, rows, 4, dpi=90, figsize=(15, 3.2 * rows), squeeze=False) as (figure, axes):
        for axis, (world, found) in zip(axes.flat, figures.items(), strict=False):
            for number, (arm, own) in enumerate(found.items()):
                steps, mean, error = (np.array(own[name]) for name in ("steps", "curve", "error"))
                axis.plot(steps / 1000, mean, color=f"C{number}", label=arm, linewidth=1.4)
                axis.fill_between(steps / 1000, mean - error, mean + error, color=f"C{number}", alpha=0.15)
            axis.set(title=world, ylim=(0, 1))
            axis.grid(alpha=0.3)
        for axis in axes.flat[len(figures) :]:
            axis.axis("off")
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="lower right", fontsize="small", ncols=2)
        figure.suptitle(title)
        figure.supxlabel("thousand environment steps")


if __name__ == "__main__":
    main()
