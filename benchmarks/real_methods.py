"""Which method for a pretrained model? SmolLM2-135M-Instruct on two tasks, equal sampled tokens, several starts.

    nice -n 15 python -m benchmarks.real_methods --world webshop --local --jobs 2     # runs what is missing

The rules are those of `benchmarks.referee`. A start is the model after imitating demonstrations of its own seed. Start
0 of treasure was a pilot, by which the budget was chosen, and is not reported. Every method has the same learning rate,
prompts and limits, and eight optimizer steps an iteration, so that none is ahead because it updates more often; 3spo
updates after every tick of its search, which is about as often.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from benchmarks import real_model
from benchmarks.equal_steps import sets
from benchmarks.grid import Arm, Run, grid_parser, run_grid
from benchmarks.real_model import BASE, FOLDER, STEPPO, TRAIN, World
from benchmarks.referee import Cell, over_starts, page_of, paired, read_at
from benchmarks.report import markdown
from benchmarks.several_starts import changed, runs_on_file

#: Sampled tokens at which methods are compared, and the iterations that every method needs for them.
BUDGETS = {"webshop": (14_000, 10), "treasure": (1_500, 5)}
UPDATES = ("minibatches=8",)
CRITIC = ("critic_lr=5e-5", "critic_warmup=1")


def main() -> None:
    """Run the missing cells and print the table."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--world", default="webshop", choices=list(BUDGETS))
    parser.add_argument("--arms", nargs="+", choices=list(methods(real_model.WORLDS["webshop"])))
    parser.add_argument("--starts", type=int, default=3)
    parser.set_defaults(seeds=1)
    args = parser.parse_args()
    world = trained(args.world)
    for number in range(1, args.starts + 1):
        start = build_start(args.world, number)
        arms = [arm_of(f"{name}, start {number}", name, world, start) for name in args.arms or methods(world)]
        run_grid(arms, changed(args, name=f"real_methods_{args.world}"), fresh=True)
    print(table(args.world))


def trained(name: str) -> World:
    """Return a task with an evaluation after every fifth of its iterations, until the budget is certainly reached."""
    world, (_, iterations) = real_model.WORLDS[name], BUDGETS[name]
    keys = [key for key in world.train if not key.startswith(("iterations=", "eval_interval=", "checkpoint_interval="))]
    own = (f"iterations={iterations}", f"eval_interval={iterations // 5}", f"checkpoint_interval={iterations}")
    return replace(world, train=(*keys, *own))


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


def build_start(name: str, number: int) -> Path:
    """Return the folder of a start, from the repository's root; made when it is absent.

    By other processes: this one would keep the memory of the training beside that of all runs.
    """
    world, folder = real_model.WORLDS[name], FOLDER / f"{name}-{number}"
    if not BASE.is_dir():
        command("model", "smollm2", "--output", str(BASE))
    if not folder.is_dir():
        where = ("--model", str(BASE), "--output", str(folder), "--seed", str(number))
        command("sft", "--env", world.env, *where, *sets((*world.keys, *world.sft)))
    return folder


def command(*words: str) -> None:
    """Run a command of run.py in a process of its own."""
    subprocess.run([sys.executable, "-m", "rl_agents", *words], check=True)


def at_tokens(runs: Mapping[Cell, Run], budget: int, name: str) -> dict[Cell, float]:
    """Return the success of every run after ``budget`` sampled tokens; raises as `read_at`."""
    return {
        cell: read_at(budget, list(run["tokens"].values()), list(run["success"].values()), f"{name}, {cell}")
        for cell, run in runs.items()
    }


def table(world: str) -> str:
    """Success at the budget, the best method first, and what it is above GRPO's, adjusted together."""
    budget, found = BUDGETS[world][0], runs_on_file(f"real_methods_{world}")
    ends = {method: at_tokens(runs, budget, method) for method, runs in found.items()}
    leads = page_of({method: paired(own, ends["grpo"]) for method, own in ends.items() if method != "grpo"})
    rows = []
    for method, runs in found.items():
        end = over_starts(ends[method])
        start = fmean(run["success"]["0"] for run in runs.values())
        cost = fmean(run["cpu_seconds"] for run in runs.values())
        lead = str(leads.get(method, ""))
        rows.append((end.mean, (method, str(end.n), f"{start:.2f}", f"{end.mean:.2f}", lead, f"{cost:,.0f}")))
    after = f"success after {budget / 1000:g} k sampled tokens"
    head = ("method", "starts", "start", after, "above grpo", "CPU-s a run")
    return markdown(head, [row for _, row in sorted(rows, reverse=True)])


if __name__ == "__main__":
    main()
