"""Methods on one task under the rules of `benchmarks.referee`: several starts, each method with its own best settings.

    python -m benchmarks.several_starts --world webshop --local --jobs 2              # tunes, then runs what is missing
    python -m benchmarks.several_starts --world webshop --local --jobs 2 --starts 3 --seeds 2

First every method is tuned on a start and a seed that are not reported: its learning rate times 0.5, 1 and 2, with few
updates and with many (3spo, which updates after every tick: with a falling and a constant rate). The best of these six
is run from every reported start with every seed, for the same number of environment steps. A stopped command continues.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.equal_steps import METHODS, WORLDS, World, build_start, curve, sets, slower
from benchmarks.grid import Arm, Run, grid_parser, run_grid
from benchmarks.referee import Cell, ShortCurve, mean_until, over_starts, read_at
from benchmarks.report import markdown, part_of, shown

ARMS = ("grpo", "gigpo", "ppo", "steppo", "3spo", "chain-gae (ours)")
RATES = (0.5, 1.0, 2.0)
#: Second choice of the grid, by whether the method searches.
UPDATES = {
    False: {"few": (), "many": ("minibatches=8", "lr_decay=0.5")},
    True: {"falling": (), "constant": ("lr_decay=0",)},
}
TUNING_START, TUNING_SEED = 100, 100
EPISODES = 128
#: Steps of the shortest training episodes in the mean, where runs ended before the budget with those of `WORLDS`.
SHORTEST = {"webshop": 4.0, "traps": 2.8, "taxi": 16.0, "guess_numbers": 2.9}


def main() -> None:
    """Tune, run, and print the tables."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--world", default="webshop", choices=list(WORLDS))
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(METHODS))
    parser.add_argument("--starts", type=int, default=3)
    parser.set_defaults(seeds=2, set=["eval_interval=4"])
    args = parser.parse_args()
    best = tune(args)
    print(markdown(("method", "best of the grid"), best.items()))
    report(args, best)
    print(table(args.world))


def tune(args: argparse.Namespace) -> dict[str, str]:
    """Run the grid; return `best_on_file`."""
    world, start = world_of(args.world), build_start(args.world, TUNING_START)
    variants = {f"{arm}: {name}": keys for arm in args.arms for name, keys in grid_of(arm).items()}
    only = {"name": f"starts_{args.world}_tuning", "first_seed": TUNING_SEED, "seeds": TUNING_SEED + 1}
    run_grid([arm_of(name, keys, world, start) for name, keys in variants.items()], changed(args, **only))
    return best_on_file(args.world)


def best_on_file(world: str) -> dict[str, str]:
    """Return the name of each method's best variant, by the mean of the second half of its curve.

    A variant whose policy collapsed may play such short episodes that its curve ends before the budget: it is the last.
    """
    budget, best = WORLDS[world].budget, dict[str, tuple[float, str]]()
    for name, stored in part_of(f"starts_{world}_tuning").items():
        arm, _, variant = name.partition(": ")
        (run,) = stored["runs"].values()
        try:
            score = mean_until(budget, *curve(run), since=budget / 2)
        except ShortCurve:
            score = -math.inf
        best[arm] = max(best.get(arm, (score, variant)), (score, variant))
    return {arm: variant for arm, (_, variant) in best.items()}


def report(args: argparse.Namespace, best: Mapping[str, str]) -> None:
    """Run every method's best variant from every reported start."""
    world = world_of(args.world)
    arms = [
        arm_of(f"{arm}, start {number}", grid_of(arm)[best[arm]], world, build_start(args.world, number))
        for number in range(args.starts)
        for arm in args.arms
    ]
    run_grid(arms, changed(args, name=f"starts_{args.world}"))


def changed(args: argparse.Namespace, **values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(args), **values})


def grid_of(arm: str) -> dict[str, Sequence[str]]:
    """The variants of a method that tuning tries: rate times updates."""
    searches = "algo=3spo" in METHODS[arm]
    return {
        f"rate x{rate:g}, {name}": [*slower(METHODS[arm], rate), *keys]
        for rate in RATES
        for name, keys in UPDATES[searches].items()
    }


def arm_of(name: str, keys: Sequence[str], world: World, start: Path) -> Arm:
    """The flags of a run that reaches the budget."""
    steps = 2200 if "search_steps=2200" in keys else EPISODES * world.steps
    own = (*slower(keys, world.rate), f"env={world.env}", f"model={start}", *world.keys)
    return Arm(name, sets((*own, f"iterations={math.ceil(world.budget / steps) + 1}")))


def world_of(name: str) -> World:
    return replace(WORLDS[name], steps=SHORTEST.get(name, WORLDS[name].steps))


def on_file(world: str) -> dict[str, dict[Cell, Run]]:
    """Return the reported runs by method, start and seed."""
    return runs_on_file(f"starts_{world}")


def runs_on_file(name: str) -> dict[str, dict[Cell, Run]]:
    """Return the runs of results/NAME.json by method, start and seed; arms there are called METHOD, start N."""
    found: dict[str, dict[Cell, Run]] = {}
    for arm, own in part_of(name).items():
        method, _, start = arm.rpartition(", start ")
        found.setdefault(method, {}).update({(start, seed): run for seed, run in own["runs"].items()})
    return found


def at_budget(runs: Mapping[Cell, Run], budget: int, name: str) -> dict[Cell, float]:
    return {
        cell: read_at(budget, *curve(run), f"{name}, start {cell[0]}, seed {cell[1]}") for cell, run in runs.items()
    }


def table(world: str) -> str:
    """Success at the budget over the starts, without adjustment: the page adjusts for all of its differences."""
    budget = WORLDS[world].budget
    ends = {method: over_starts(at_budget(runs, budget, method)) for method, runs in on_file(world).items()}
    rows = [(method, str(end.n), shown(end)) for method, end in ends.items()]
    return markdown(("method", "starts", f"success after {budget // 1000} k steps"), rows)


if __name__ == "__main__":
    main()
