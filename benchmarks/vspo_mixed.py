"""VSPO against GRPO on tasks of mixed difficulty, where more than half of the groups agree from the start.

    python -m benchmarks.vspo_mixed --local

circuit_decoding with lists of two candidates (nearly always solved), of four and ten, and of twenty and thirty (hardly
ever), in equal parts and never labelled. All arms sample as many episodes; the test tasks are mixed alike. Tuned:
learning rate and iterations, on "grpo" alone.

``silent at the start``: share of the groups of the first iteration whose episodes all have one reward.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.equal_steps import sets
from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid

COMMON = (
    "env=circuit_decoding", "env.sizes=2-2,2-4,2-10,2-20,2-30", "tasks_per_iteration=20", "group_size=8",
    "iterations=30", "lr=1e-3", "eval_episodes=300", "eval_interval=0",
)  # fmt: skip
VSPO = ("algo=vspo", *COMMON)
KEYS: dict[str, tuple[str, ...]] = {
    "grpo": ("algo=grpo", *COMMON, "aggregation=seq-mean-token-mean", "kl_coef=0.001"),
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
    plot(arms, RESULTS / f"{args.name}.png", f"circuit_decoding, mixed sizes, {args.seeds} seeds")


def silent(runs: list[Run]) -> str:
    """Mean over the seeds."""
    return f"{fmean(run['zero_advantage'][0] for run in runs):.2f}"


if __name__ == "__main__":
    main()
