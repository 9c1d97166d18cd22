"""VSPO against GRPO on tasks of mixed difficulty, where more than half of the groups agree from the start.

    python -m benchmarks.vspo_mixed --local --seeds 10

Three doors on one of five floors that the starter knows more or less well (benchmarks/mixed_doors.py); the test tasks
are mixed alike. All arms sample as many episodes and have the same keys but for what their names say; GRPO gets VSPO's
aggregation and KL term. Tuned: iterations, on "grpo" alone.

``silent at the start``: share of the groups of the first iteration whose episodes all have one reward.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.equal_steps import sets
from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid

COMMON = (
    "env=gymnasium:benchmarks.mixed_doors:Doors", "starter_iterations=4", "env.test_tasks=400", "eval_episodes=400",
    "eval_interval=4", "iterations=24", "tasks_per_iteration=16", "group_size=8", "lr=1e-3",
)  # fmt: skip
VSPO = ("algo=vspo", *COMMON)
KEYS: dict[str, tuple[str, ...]] = {
    "grpo": ("algo=grpo", *COMMON, "loss_agg_mode=seq-mean-token-mean", "kl_coef=0.001"),
    "vspo": VSPO,
    "vspo, random draws": (*VSPO, "vspo_mode=random"),
    "vspo, no clip": (*VSPO, "vspo_clip=false"),
    "vspo, random draws, no clip": (*VSPO, "vspo_mode=random", "vspo_clip=false"),
}


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "vspo_mixed")
    parser.add_argument("--arms", nargs="+", default=list(KEYS), choices=list(KEYS))
    args = parser.parse_args()
    arms = run_grid([Arm(name, sets(KEYS[name])) for name in args.arms], args)
    print(markdown(arms, {"silent at the start": silent}))
    plot(arms, RESULTS / f"{args.name}.png", f"doors of mixed difficulty, {args.seeds} seeds")


def silent(runs: list[Run]) -> str:
    """Mean over the seeds."""
    return f"{fmean(run['zero_advantage'][0] for run in runs):.2f}"


if __name__ == "__main__":
    main()
