"""Every method on one task, from one weak start, at equal environment steps.

    python -m benchmarks.equal_steps --local --jobs 2 --seeds 10                 # household tasks, start about 0.1
    python -m benchmarks.equal_steps --local --jobs 2 --seeds 10 --world taxi

The start is imitated from few demonstrations and made once (``runs/starts``); on guess_numbers and circuit_decoding it
is the usual one: from a weaker one no method learned anything there. Rate, price of invalid actions, episodes of an
iteration and names of states are the same for all; what belongs to a method alone (clip, gamma, critic) is that of its
small preset. 3spo updates after every tick, so that its rate is lower, and falls over the second half of the run.
Success is that of the plain policy on the test tasks at temperature 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from benchmarks.grid import Arm, Run, grid_parser, imitated, markdown, run_grid
from benchmarks.referee import mean_until, read_at
from benchmarks.report import drawn, mean_text

EPISODES = 128


@dataclass(frozen=True)
class World:
    """A task and the start on it.

    Attributes:
        env: its name.
        sft: what the start is made with, beside the environment's defaults for a starter.
        keys: of every arm.
        steps: of the shortest episodes in training, in the mean: how many iterations the budget takes.
        budget: environment steps at which methods are compared.
        rate: every learning rate times this.
    """

    env: str
    sft: tuple[str, ...]
    keys: tuple[str, ...]
    steps: float
    budget: int
    rate: float = 1.0


WORLDS = {
    "alfworld": World(
        "alfworld", ("iterations=5",),
        ("env.train_tasks=50000", "env.anchor=role"), 22.0, 44_000,
    ),
    "guess_numbers": World("guess_numbers", (), (), 3.3, 15_000, 0.5),
    "webshop": World("webshop", ("iterations=5",), (), 5.0, 20_000),
    "circuit_decoding": World("circuit_decoding", (), (), 8.0, 30_000, 0.5),
    "taxi": World("gymnasium:benchmarks.toy_text:Taxi", ("iterations=8",), (), 20.0, 44_000),
    "lake": World("gymnasium:benchmarks.toy_text:Lake", (), (), 14.0, 44_000),
    "taxi_complete": World(
        "gymnasium:benchmarks.toy_text:Taxi", ("iterations=8",), ("env.kwargs={goal_in_key: true}",), 20.0, 44_000,
    ),
    "deduction": World("gymnasium:benchmarks.unseen_tasks:Deduction", ("iterations=8",), (), 5.0, 16_000),
    "rooms": World("gymnasium:benchmarks.unseen_tasks:Rooms", ("iterations=6",), (), 10.0, 30_000),
    "traps": World("gymnasium:benchmarks.unseen_tasks:Traps", ("iterations=3",), (), 4.5, 16_000),
    "errand": World("gymnasium:benchmarks.unseen_tasks:Errand", ("iterations=10",), (), 9.0, 30_000),
    "science": World("gymnasium:benchmarks.unseen_tasks:Science", ("iterations=10",), (), 8.0, 24_000),
    "blocks": World("gymnasium:benchmarks.unseen_tasks:Blocks", ("iterations=8",), (), 9.0, 24_000),
    "river": World("gymnasium:benchmarks.unseen_tasks:River", ("iterations=8",), (), 6.0, 20_000),
}  # fmt: skip
GROUPS = ("tasks_per_iteration=16", "group_size=8", "lr=1e-3")
SINGLE = (f"tasks_per_iteration={EPISODES}", "group_size=1", "lr=1e-3")
CRITIC = ("critic_lr=1e-3", "critic_warmup=2")
#: chain-gae's former default: it looked further ahead.
LAMBDA_095 = ("gae_lambda=0.95", "transition_prior=0")
SEARCH = ("algo=3spo", "search_steps=2200")
#: The clip is the default. It is named, so that a grid does not continue runs on file of the form before it.
LEARNED = (*SEARCH, "lr=6e-4", "grad_clip=0.05")
#: 3spo with one part changed: what the paper ablates, then what our reading adds to it.
ABLATIONS: dict[str, tuple[str, ...]] = {
    "3spo, w/o novelty": ("novelty=none",),
    "3spo, w/o difference": ("score_difference=none",),
    "3spo, fixed omega": ("novelty_fixed=0.25",),
    "3spo, uniform n": ("search_rollouts=uniform",),
    "3spo, 4 paths a task": ("search_max_finished=4",),
    "3spo, novelty always": ("novelty_until=always",),
    "3spo, difference of scores": ("score_difference=score",),
    "3spo, counts": ("score_rate=counts",),
    "3spo, deviation of siblings": ("sibling_norm=group",),
    "3spo, w/o paths": ("path_weight=0",),
    "3spo, last steps of failures": ("path_failures=last",),
    "3spo, constant rate": ("lr_decay=0",),
    "3spo, G_max 4": ("group_size=4",),
}
METHODS: dict[str, tuple[str, ...]] = {
    "grpo": ("algo=grpo", *GROUPS),
    "rloo": ("algo=rloo", *GROUPS),
    "dapo": ("algo=dapo", *GROUPS),
    "gspo": ("algo=gspo", *GROUPS, "clip_low=0.02", "clip_high=0.03"),
    "cispo": ("algo=cispo", *GROUPS),
    "reinforce++": ("algo=reinforce++", *SINGLE),
    "vspo": ("algo=vspo", *GROUPS),
    "vspo, random draws": ("algo=vspo", *GROUPS, "vspo_mode=random"),
    "vspo, no clip": ("algo=vspo", *GROUPS, "vspo_clip=false"),
    "gigpo": ("algo=gigpo", *GROUPS, "gamma=0.95", "step_norm=mean_std"),
    "hgpo": ("algo=hgpo", *GROUPS, "gamma=0.95", "step_norm=mean_std"),
    "steppo": ("algo=steppo", *SINGLE, *CRITIC, "gamma=0.99", "clip_low=0.02", "clip_high=0.03"),
    "ppo": ("algo=ppo", *SINGLE, *CRITIC, "gae_lambda=0.95"),
    "3spo": LEARNED,
    "3spo, published": (*SEARCH, "lr=3e-4", "reading=published"),
    **{name: (*LEARNED, *keys) for name, keys in ABLATIONS.items()},
    "chain-gae (ours), lambda 0.95, each episode once": ("algo=chain-gae", *SINGLE, *LAMBDA_095, "success_replay=0"),
    "chain-gae (ours), lambda 0.95": ("algo=chain-gae", *SINGLE, *LAMBDA_095),
    "chain-gae (ours), lambda 0.7, no correction": ("algo=chain-gae", *SINGLE, "gae_lambda=0.7", "transition_prior=0"),
    "chain-gae (ours)": ("algo=chain-gae", *SINGLE),
}  # fmt: skip
#: Those that get solid lines.
FIRST = ("grpo", "hgpo", "gigpo", "ppo", "steppo", "3spo", "chain-gae (ours)", "3spo, published")
#: Safe for the color-blind (Okabe and Ito); methods beyond the eighth begin again, dashed and then dotted.
COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#999999")
STYLES = ("-", "--", ":")


def main() -> None:
    """Run and print the table; `benchmarks.equal_steps_page` draws."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--world", default="alfworld", choices=list(WORLDS))
    methods = [name for name in METHODS if name not in ABLATIONS]
    parser.add_argument("--arms", nargs="+", default=methods, choices=list(METHODS))
    parser.add_argument("--budget", type=int, default=0, help="environment steps at which arms are compared")
    args = parser.parse_args()
    args.name = args.name or f"equal_steps_{args.world}"
    world = WORLDS[args.world]
    budget = args.budget or world.budget
    start = build_start(args.world)
    arms = run_grid([arm(name, world, start, budget) for name in args.arms], args)
    print(markdown(arms, columns(budget)))


def build_start(name: str, number: int | None = None) -> Path:
    """Return a start of the world; those with a number imitate demonstrations of this seed."""
    own, seed = (name, ()) if number is None else (f"{name}-{number}", ("--seed", str(number)))
    return imitated(Path("runs") / "starts" / own, WORLDS[name].env, *seed, *sets(WORLDS[name].sft))


def arm(name: str, world: World, start: Path, budget: int) -> Arm:
    """The flags of a method, for as many iterations as the budget takes."""
    steps = 2200 if "search_steps=2200" in METHODS[name] else EPISODES * world.steps
    keys = (*slower(METHODS[name], world.rate), f"env={world.env}", f"model={start}", *world.keys)
    return Arm(name, sets((*keys, f"iterations={math.ceil(budget / steps)}")))


def slower(keys: Sequence[str], rate: float) -> Sequence[str]:
    """With the learning rate multiplied."""
    rates = {key: f"lr={float(key[3:]) * rate:g}" for key in keys if key.startswith("lr=")}
    return keys if rate == 1 else [rates.get(key, key) for key in keys]


def columns(budget: int) -> dict[str, Callable[[list[Run]], str]]:
    """Success at a third, two thirds and all of the budget, and the mean of the curve until then."""

    def at(steps: int) -> Callable[[list[Run]], str]:
        return lambda runs: at_budget(runs, steps)

    parts = (budget // 3, 2 * budget // 3, budget)
    return {
        **{f"at {part / 1000:.3g} k steps": at(part) for part in parts},
        "mean of the curve": lambda runs: mean_of_curve(runs, budget),
    }


def mean_of_curve(runs: Sequence[Run], budget: int) -> str:
    """Mean and interval over the seeds of the mean success from 0 to ``budget`` environment steps."""
    return mean_text(mean_until(budget, *curve(run)) for run in runs)


def unique_states(runs: list[Run]) -> str:
    """Mean and interval over the seeds of how many different states an iteration sees."""
    return mean_text(100 * run["unique_states"] for run in runs)


def curve(run: Run) -> tuple[list[int], list[float]]:
    """Environment steps and success at every evaluation."""
    until = [0, *accumulate(run["steps"])]
    return [until[int(iteration)] for iteration in run["success"]], list(run["success"].values())


def at_budget(runs: list[Run], budget: int) -> str:
    """Mean and interval over the seeds of the success after ``budget`` environment steps."""
    return mean_text(read_at(budget, *curve(run)) for run in runs)


def plot(arms: Mapping[str, Sequence[Run]], path: Path, title: str, budget: float = math.inf) -> None:
    """Plot success on the test tasks over environment steps, mean over the seeds; the legend has the best arm first."""
    order = [*FIRST, *(name for name in (*METHODS, *arms) if name not in FIRST)]
    ends = {}
    with drawn(path, figsize=(8.5, 4.6)) as (_, axis):
        for arm, runs in arms.items():
            number, curves = order.index(arm), [curve(run) for run in runs]
            grid = np.linspace(0, min(budget, *(steps[-1] for steps, _ in curves)), 60)
            mean = np.mean([np.interp(grid, steps, success) for steps, success in curves], axis=0)
            style, color = STYLES[number // len(COLORS) % len(STYLES)], COLORS[number % len(COLORS)]
            (line,) = axis.plot(grid / 1000, mean, style, color=color, linewidth=1.8)
            ends[f"{arm} ({len(runs)})"] = (mean[-1], line)
        labels = sorted(ends, key=lambda label: -ends[label][0])
        axis.legend([ends[label][1] for label in labels], labels, title="method (seeds)", fontsize=8,
                    loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False)  # fmt: skip
        axis.set(xlabel="thousand environment steps", ylabel="success on the test tasks", title=title)
        axis.set_ylim(0)
        axis.grid(alpha=0.3)


def sets(keys: Sequence[str]) -> tuple[str, ...]:
    """As flags of ``run.py``."""
    return tuple(part for key in keys for part in ("--set", key))


if __name__ == "__main__":
    main()
