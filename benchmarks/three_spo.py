"""3SPO against GRPO, GiGPO and HGPO at equal environment steps, and its ablations.

    python -m benchmarks.three_spo --local                              # alfworld
    python -m benchmarks.three_spo --local --env guess_numbers --budget 16000 --arms 3spo grpo gigpo hgpo

Small presets from the same starter. A sampled action is an environment step, also where equal siblings share one
execution. Success is that of the plain policy on the test tasks at temperature 1, interpolated between evaluations at
``--budget`` environment steps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, run_grid, text
from benchmarks.learning_curves import RECIPES
from rl_agents.reporting.statistics import student_interval

#: Methods by the name of their preset.
METHODS = {"3spo": "3spo", "grpo": "grpo", "gigpo": "gigpo", "hgpo": "hgpo"}
#: Switches of the search by the paper's names, and of what is ours.
ABLATIONS: dict[str, tuple[str, ...]] = {
    "w/o novelty": ("novelty=none",),
    "w/o difference": ("score_difference=none",),
    "w/o adaptive weight": ("novelty_fixed=0.25",),
    "w/o adaptive n": ("search_rollouts=uniform",),
    "w/o backtracking": ("search_backtrack=false",),
    "counts": ("state_value=counts",),
    "observation": ("env.anchor=observation",),
}


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--arms", nargs="+", default=[*METHODS, *ABLATIONS], choices=[*METHODS, *ABLATIONS])
    parser.add_argument("--budget", type=int, default=44_000, help="environment steps at which arms are compared")
    args = parser.parse_args()
    args.name = args.name or f"three_spo_{args.env}"
    arms = run_grid([arm(name, args.env) for name in args.arms], args)
    columns: dict[str, Callable[[list[Run]], str]] = {
        f"at {args.budget // 1000} k steps": lambda runs: text(at_budget(runs, args.budget)),
        "unique states per step": lambda runs: f"{fmean(run['unique_states'] for run in runs):.3f}",
        "optimiser steps": lambda runs: f"{fmean(run['optimiser_steps'] for run in runs):.0f}",
        "syncs": lambda runs: f"{fmean(run['syncs'] for run in runs):.0f}",
        "tokens/s": lambda runs: f"{fmean(run['tokens_per_s'] for run in runs):.0f}",
    }
    print(markdown(arms, columns))
    plot(arms, RESULTS / f"{args.name}.png", f"{args.env}, {args.seeds} seeds")


def arm(name: str, env: str) -> Arm:
    """The flags of a method's small preset, or of an ablation of 3spo's."""
    keys = ABLATIONS.get(name, ())
    return Arm(name, (*preset(METHODS.get(name, "3spo"), env), *(part for key in keys for part in ("--set", key))))


def preset(method: str, env: str) -> tuple[str, ...]:
    """The recipe for two cores; those of papers' sizes lie beside it in some environments."""
    small = RECIPES / f"{env}_{method}_small.yaml"
    path = small if small.is_file() else RECIPES / f"{env}_{method}.yaml"
    return ("--config", str(path.relative_to(Path.cwd())))


def curve(run: Run) -> tuple[list[int], list[float]]:
    """Environment steps and success at every evaluation."""
    until = [0, *accumulate(run["steps"])]
    return [until[int(iteration)] for iteration in run["success"]], list(run["success"].values())


def at_budget(runs: list[Run], budget: int) -> dict[str, float]:
    """Mean and interval over the seeds of the success after ``budget`` environment steps."""
    found: dict[str, float] = student_interval([float(np.interp(budget, *curve(run))) for run in runs]).to_dict()
    return found


def plot(arms: dict[str, list[Run]], path: Path, title: str) -> None:
    """Write a picture: test success over environment steps, mean over the seeds with the range of the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    for number, (name, runs) in enumerate(arms.items()):
        curves = [curve(run) for run in runs]
        grid = np.linspace(0, min(steps[-1] for steps, _ in curves), 50)
        lines = np.array([np.interp(grid, steps, success) for steps, success in curves])
        style = "-" if name in METHODS else ":"
        axis.plot(grid / 1000, lines.mean(axis=0), style, color=f"C{number}", label=name)
        if name in METHODS:
            axis.fill_between(grid / 1000, lines.min(axis=0), lines.max(axis=0), color=f"C{number}", alpha=0.15)
    axis.set(xlabel="thousand environment steps", ylabel="success on the test tasks", title=title, ylim=(0, 1))
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    main()
