"""Which method for a pretrained model? SmolLM2-135M-Instruct, equal sampled tokens, several starts.

    nice -n 15 python -m benchmarks.real_methods --world treasure --local     # runs what is missing

The rules are those of `benchmarks.referee`. A start is the model after imitating demonstrations of its own seed. Start
0 of treasure was a pilot, by which the budget was chosen, and is not reported. Every method has the same learning rate,
prompts and limits, and eight optimizer steps an iteration, so that none is ahead because it updates more often; 3spo
updates after every tick of its search, which is about as often.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import real_model
from benchmarks.equal_steps import COLORS, sets
from benchmarks.equal_steps import curve as env_curve
from benchmarks.grid import Arm, Run, grid_parser, run_grid
from benchmarks.real_model import TRAIN, World, start_of
from benchmarks.referee import Cell, Difference, over_starts, page_of, paired, read_at, start_means
from benchmarks.report import RESULTS, drawn, markdown, part_of, shown
from benchmarks.several_starts import changed, runs_on_file


@dataclass(frozen=True)
class Budget:
    """What is compared on a task.

    Attributes:
        tokens: sampled tokens at which methods are compared.
        iterations: that every method needs for them.
        share: of the task's episodes, or steps of a search, in an iteration.
        evaluations: in a run, besides that of the start.
        episodes: of an evaluation.
    """

    tokens: int
    iterations: int
    share: float = 1.0
    evaluations: int = 5
    episodes: int = 128


BUDGETS = {
    "treasure": Budget(1_500, 5),
    "clerk": Budget(12_000, 6, share=0.5, evaluations=3, episodes=66),
}
UPDATES = ("minibatches=8",)
#: A critic is a second network of this size: its rate is above the policy's, and it trains alone at first.
CRITIC = ("critic_lr=5e-5", "critic_warmup=1")
#: The paper's clip range (0.0003) is below the difference between engine and learner in bfloat16.
STEPPO = ("algo=steppo", *CRITIC, "clip_low=0.02", "clip_high=0.03")


def main() -> None:
    """Run the missing cells and print the table."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--world", default="treasure", choices=list(BUDGETS))
    parser.add_argument("--arms", nargs="+", choices=list(methods(real_model.WORLDS["treasure"])))
    parser.add_argument("--starts", type=int, default=3)
    parser.set_defaults(seeds=1)
    args = parser.parse_args()
    world = trained(args.world)
    for number in range(1, args.starts + 1):
        start = start_of(args.world, number)
        arms = [arm_of(f"{name}, start {number}", name, world, start) for name in args.arms or methods(world)]
        run_grid(arms, changed(args, name=f"real_methods_{args.world}"), fresh=True)
    print(table(args.world))
    picture()


def trained(name: str) -> World:
    """Return a task with its iterations and evaluations of `BUDGETS`."""
    world, budget = real_model.WORLDS[name], BUDGETS[name]
    own = {
        "eval_episodes": budget.episodes,
        "iterations": budget.iterations,
        "eval_interval": budget.iterations // budget.evaluations,
        "checkpoint_interval": budget.iterations,
    }
    kept = [key for key in world.train if key.partition("=")[0] not in own]
    sizes = {"episodes": int(world.episodes * budget.share), "steps": int(world.steps * budget.share)}
    return replace(world, train=(*kept, *(f"{key}={value}" for key, value in own.items())), **sizes)


def methods(world: World) -> dict[str, tuple[str, ...]]:
    """The keys of each method on a task."""
    tasks = f"tasks_per_iteration={world.episodes // world.group}"
    groups = (tasks, f"group_size={world.group}", *UPDATES)
    single = (f"tasks_per_iteration={world.episodes}", "group_size=1", *UPDATES)
    return {
        "grpo": ("algo=grpo", *groups),
        "3spo": ("algo=3spo", tasks, f"search_steps={world.steps}"),
        "gigpo": ("algo=gigpo", *groups),
        "vspo": ("algo=vspo", *groups),
        "chain-gae (ours)": ("algo=chain-gae", *single),
        "ppo": ("algo=ppo", *single, *CRITIC, "gae_lambda=0.95"),
        "steppo": (*STEPPO, *single),
    }


def arm_of(name: str, method: str, world: World, start: Path) -> Arm:
    """The flags of a method from a start."""
    keys = (*methods(world)[method], *TRAIN, f"env={world.env}", f"model={start}", *world.keys, *world.train)
    return Arm(name, sets(keys))


def worlds() -> list[str]:
    """Return the tasks with runs on file."""
    return [world for world in BUDGETS if part_of(f"real_methods_{world}")]


def ends(world: str) -> dict[str, dict[Cell, float]]:
    """Return the success at the budget by method, start and seed; raises as `read_at`."""
    budget = BUDGETS[world].tokens
    return {
        method: {cell: read_at(budget, *curve(run), f"{method}, {cell}") for cell, run in runs.items()}
        for method, runs in runs_on_file(f"real_methods_{world}").items()
    }


def curve(run: Run) -> tuple[list[float], list[float]]:
    """Return the sampled tokens and the success of a run's evaluations."""
    return tokens(run), list(run["success"].values())


def tokens(run: Run) -> list[float]:
    return list(run["tokens"].values())


def leads() -> dict[str, Difference]:
    """Return what every method is above GRPO at the budget, of all tasks, adjusted together."""
    found = {world: ends(world) for world in worlds()}
    return page_of(
        {
            f"{world}: {method}": paired(own, all_ends["grpo"])
            for world, all_ends in found.items()
            for method, own in all_ends.items()
            if method != "grpo"
        }
    )


def table(world: str) -> str:
    """Success at the budget, the best method first, and what it is above GRPO's."""
    above, budget, rows = leads(), BUDGETS[world].tokens, []
    for method, success in ends(world).items():
        runs, end = runs_on_file(f"real_methods_{world}")[method].values(), over_starts(success)
        start, cost = fmean(run["success"]["0"] for run in runs), fmean(run["cpu_seconds"] for run in runs)
        steps = fmean(read_at(budget, tokens(run), env_curve(run)[0]) for run in runs)
        lead = str(above.get(f"{world}: {method}", ""))
        rows.append((end.mean, (method, str(end.n), f"{start:.2f}", shown(end), lead, f"{steps:,.0f}", f"{cost:,.0f}")))
    after = f"after {budget / 1000:g} k sampled tokens"
    head = ("method", "starts", "start", after, "above grpo", "environment steps", "CPU-s a run")
    return markdown(head, [row for _, row in sorted(rows, reverse=True)])


def picture() -> None:
    """Write results/real_methods.png: curves over sampled tokens, and success at the budget with intervals."""
    names = worlds()
    size = {"figsize": (8.5, 3.2 * len(names)), "squeeze": False}
    with drawn(RESULTS / "real_methods.png", len(names), 2, **size) as (_, axes):
        for world, (curves, at_end) in zip(names, axes, strict=True):
            draw(world, curves, at_end)


def draw(world: str, curves: Any, at_end: Any) -> None:
    """Draw a task: mean curves of the methods, and below each other their means, intervals and starts."""
    budget, success = BUDGETS[world].tokens, ends(world)
    order = sorted(success, key=lambda method: over_starts(success[method]).mean)
    for row, method in enumerate(order):
        color = COLORS[list(methods(real_model.WORLDS[world])).index(method)]
        grid = np.linspace(0, budget, 60)
        runs = runs_on_file(f"real_methods_{world}")[method].values()
        mean = np.mean([np.interp(grid, *curve(run)) for run in runs], axis=0)
        curves.plot(grid / 1000, mean, color=color, linewidth=1.8)
        end, starts = over_starts(success[method]), start_means(success[method])
        if not math.isnan(end.low):
            at_end.plot((end.low, end.high), (row, row), color=color)
        at_end.plot(starts, [row] * len(starts), "|", color=color, markersize=9)
        at_end.plot(end.mean, row, "o", color=color)
    curves.set(xlabel="thousand sampled tokens", ylabel="success on test tasks", title=world, ylim=(0, 1.02))
    after = f"success after {budget / 1000:g} k sampled tokens"
    at_end.set(xlim=(0, 1.2), ylim=(-0.7, len(order) - 0.3), xlabel=after, title="means, starts, 95% intervals")
    at_end.set_yticks(range(len(order)), order)
    for axis in (curves, at_end):
        axis.grid(alpha=0.3)


if __name__ == "__main__":
    main()
