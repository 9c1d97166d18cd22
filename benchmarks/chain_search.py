"""chain-search against GRPO, GiGPO, HGPO and 3SPO as published at equal environment steps, and its ablations.

    python -m benchmarks.chain_search --local                              # alfworld
    python -m benchmarks.chain_search --local --env guess_numbers --budget 16000 --arms chain-search grpo gigpo hgpo

Small presets from the same starter. A sampled action is an environment step, also where equal siblings share one
execution. Success is that of the plain policy on the test tasks at temperature 1, interpolated between evaluations at
``--budget`` environment steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from itertools import accumulate
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, run_grid, text
from benchmarks.learning_curves import preset
from rl_agents.reporting.statistics import student_interval
from rl_agents.settings import load_recipe

#: Methods, by their small presets; 3SPO's own equations get the sizes of chain-search's.
METHODS = ("chain-search", "grpo", "gigpo", "hgpo", "3spo")
SIZES = ("tasks_per_iteration", "search_steps")
#: Switches of chain-search. It pays for no novelty and leaves a task after one finished trajectory, so that 3SPO's
#: ablations "w/o novelty" and "w/o backtracking" are the method itself, and their opposites stand here.
ABLATIONS: dict[str, tuple[str, ...]] = {
    "with novelty": ("novelty=changed",),
    "with novelty, fixed weight": ("novelty=changed", "novelty_fixed=0.25"),
    "w/o difference": ("score_difference=none", "success_weight=0.5"),
    "w/o adaptive n": ("search_rollouts=uniform",),
    "with backtracking": ("search_max_finished=8",),
    "states named by the text": ("env.anchor=observation",),
}
#: Shortest mean length of an episode in training: how many iterations of whole episodes make up the budget.
EPISODE_STEPS = {"alfworld": 14.0, "guess_numbers": 2.8, "circuit_decoding": 8.0, "webshop": 4.0}


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--env", default="alfworld")
    parser.add_argument("--arms", nargs="+", default=[*METHODS, *ABLATIONS], choices=[*METHODS, *ABLATIONS])
    parser.add_argument("--budget", type=int, default=44_000, help="environment steps at which arms are compared")
    args = parser.parse_args()
    args.name = args.name or f"chain_search_{args.env}"
    arms = run_grid([arm(name, args.env, args.budget) for name in args.arms], args)
    columns: dict[str, Callable[[list[Run]], str]] = {
        f"at {args.budget // 1000} k steps": lambda runs: text(at_budget(runs, args.budget)),
        "unique states per 100 steps": unique_states,
        "optimiser steps": lambda runs: f"{fmean(run['optimiser_steps'] for run in runs):.0f}",
        "syncs": lambda runs: f"{fmean(run['syncs'] for run in runs):.0f}",
        "tokens/s": lambda runs: f"{fmean(run['tokens_per_s'] for run in runs):.0f}",
    }
    print(markdown(arms, columns))
    plot(arms, RESULTS / f"{args.name}.png", f"{args.env}, {args.seeds} seeds")


def unique_states(runs: list[Run]) -> str:
    """Mean and interval over the seeds of how many different states an iteration sees."""
    return text(student_interval([100 * run["unique_states"] for run in runs]).to_dict())


def arm(name: str, env: str, budget: int) -> Arm:
    """The flags of a method, or of an ablation of chain-search, for as many iterations as the budget is."""
    file = preset(name if name in METHODS and name != "3spo" else "chain-search", env)
    keys = load_recipe(str(file))
    episodes = keys["tasks_per_iteration"] * keys.get("group_size", 8)
    iterations = math.ceil(budget / keys.get("search_steps", episodes * EPISODE_STEPS[env]))
    if name == "3spo":
        return three_spo(name, env, budget, "score_gate=score")
    flags, own = ("--config", str(file.relative_to(Path.cwd()))), ABLATIONS.get(name, ())
    return Arm(name, (*flags, *(part for key in (f"iterations={iterations}", *own) for part in ("--set", key))))


def three_spo(name: str, env: str, budget: int, *own: str) -> Arm:
    """3SPO with the sizes of chain-search's preset, and keys of its own."""
    keys = load_recipe(str(preset("chain-search", env)))
    iterations = math.ceil(budget / keys["search_steps"])
    given = (f"iterations={iterations}", *(f"{key}={keys[key]}" for key in SIZES), *own)
    return Arm(name, ("--algo", "3spo", "--env", env, *(part for key in given for part in ("--set", key))))


def curve(run: Run) -> tuple[list[int], list[float]]:
    """Environment steps and success at every evaluation."""
    until = [0, *accumulate(run["steps"])]
    return [until[int(iteration)] for iteration in run["success"]], list(run["success"].values())


def at_budget(runs: list[Run], budget: int) -> dict[str, float]:
    """Mean and interval over the seeds of the success after ``budget`` environment steps."""
    found: dict[str, float] = student_interval([float(np.interp(budget, *curve(run))) for run in runs]).to_dict()
    return found


def plot(arms: dict[str, list[Run]], path: Path, title: str, whole: Collection[str] = METHODS) -> None:
    """Write a picture: test success over environment steps, mean over the seeds with the range of the seeds.

    Args:
        whole: arms that are methods; changed ones are dotted.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 4.5))
    highest = 0.0
    for number, (name, runs) in enumerate(arms.items()):
        curves = [curve(run) for run in runs]
        grid = np.linspace(0, min(steps[-1] for steps, _ in curves), 50)
        lines = np.array([np.interp(grid, steps, success) for steps, success in curves])
        highest = max(highest, lines.max())
        style = "-" if name in whole else ":"
        axis.plot(grid / 1000, lines.mean(axis=0), style, color=f"C{number}", label=name)
        if name in whole:
            axis.fill_between(grid / 1000, lines.min(axis=0), lines.max(axis=0), color=f"C{number}", alpha=0.15)
    axis.set(xlabel="thousand environment steps", ylabel="success on the test tasks", title=title)
    axis.set_ylim(0, min(1.0, 1.3 * highest))  # room for the legend
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small", ncols=2)
    figure.savefig(path, dpi=110, bbox_inches="tight")
    pyplot.close(figure)


if __name__ == "__main__":
    main()
