"""chain-gae against GRPO, GiGPO, HGPO, StepPO and readings of 3SPO at equal environment steps, and its parts.

    python -m benchmarks.chain_gae --local --jobs 2 --set eval_episodes=382 eval_interval=5
    python -m benchmarks.chain_gae --local --jobs 2 --set eval_interval=5 --env alfworld --budget 44000

Small presets from the same starter, as many iterations of 128 episodes as the budget takes. Success is that of the
policy on the test tasks at temperature 1, interpolated between evaluations at ``--budget`` environment steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.chain_search import EPISODE_STEPS, at_budget, curve, plot, three_spo
from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, run_grid, text
from benchmarks.learning_curves import preset
from rl_agents.reporting.statistics import student_interval
from rl_agents.settings import load_recipe

#: Methods, by their small presets.
BASELINES = ("grpo", "gigpo", "steppo", "hgpo")
METHODS = ("chain-gae", *BASELINES)
#: Readings of 3SPO: as published, today's defaults, and what the exact worlds say of repairs (docs/algorithms/3spo.md).
SEARCHES: dict[str, tuple[str, ...]] = {
    "3spo, published": ("score_gate=score",),
    "3spo": (),
    "3spo, repaired": ("score_alpha=1", "score_rate=chain", "novelty_until=solved"),
}
#: chain-gae's defaults when this was measured; those of today are in `benchmarks.equal_steps`.
AS_IT_WAS = ("solved_again=0", "lam=0.95", "transition_prior=0")
#: What is changed of it.
PARTS: dict[str, tuple[str, ...]] = {
    "chain-gae, lambda 0": ("lam=0",),
    "chain-gae, lambda 0.5": ("lam=0.5",),
    "chain-gae, lambda 1": ("lam=1",),
    "chain-gae, no memory": ("state_decay=0.001",),
    "chain-gae, solved again": ("solved_again=4",),
    "chain-gae, solved again, weight 1": ("solved_again=4", "solved_again_weight=1"),
    "chain-gae, groups of 8": ("group_size=8", "tasks_per_iteration=16"),
    "chain-gae, token-mean": ("aggregation=token-mean",),
}


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "")
    parser.add_argument("--env", default="guess_numbers", choices=list(EPISODE_STEPS))
    parser.add_argument("--arms", nargs="+", default=[*METHODS, *SEARCHES], choices=[*METHODS, *SEARCHES, *PARTS])
    parser.add_argument("--budget", type=int, default=12_000, help="environment steps at which arms are compared")
    args = parser.parse_args()
    args.name = args.name or f"chain_gae_{args.env}"
    arms = run_grid([arm(name, args.env, args.budget) for name in args.arms], args)
    print(markdown(arms, columns(args.budget)))
    plot(arms, RESULTS / f"{args.name}.png", f"{args.env}, {args.seeds} seeds", METHODS)


def columns(budget: int) -> dict[str, Callable[[list[Run]], str]]:
    """Success at a third, two thirds and all of the budget, and the mean of the curve until then."""

    def at(steps: int) -> Callable[[list[Run]], str]:
        return lambda runs: text(at_budget(runs, steps))

    parts = (budget // 3, 2 * budget // 3, budget)
    return {
        **{f"at {part / 1000:.3g} k steps": at(part) for part in parts},
        "mean of the curve": lambda runs: text(mean_of_curve(runs, budget)),
    }


def mean_of_curve(runs: Sequence[Run], budget: int) -> dict[str, float]:
    """Mean and interval over the seeds of the mean success from 0 to ``budget`` environment steps."""
    grid = np.linspace(0, budget, 200)
    found: dict[str, float] = student_interval([float(np.interp(grid, *curve(run)).mean()) for run in runs]).to_dict()
    return found


def arm(name: str, env: str, budget: int) -> Arm:
    """The flags of a method, or of a changed chain-gae, for as many iterations as the budget takes."""
    if name in SEARCHES:
        return three_spo(name, env, budget, *SEARCHES[name])
    file = preset(name if name in METHODS else "chain-gae", env)
    keys = load_recipe(str(file))
    episodes = keys["tasks_per_iteration"] * keys["group_size"]
    parts = PARTS.get(name, ())
    given = {part.partition("=")[0] for part in parts}
    then = () if name in BASELINES else tuple(part for part in AS_IT_WAS if part.partition("=")[0] not in given)
    chosen = (f"iterations={math.ceil(budget / (episodes * EPISODE_STEPS[env]))}", *parts, *then)
    config = ("--config", str(file.relative_to(Path.cwd())))
    return Arm(name, (*config, *(part for key in chosen for part in ("--set", key))))


if __name__ == "__main__":
    main()
