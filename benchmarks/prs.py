"""Progressive reward shaping against the 0-1 reward, under GRPO and VSPO.

    python -m benchmarks.prs --local --jobs 2 --set iterations=40 eval_episodes=382
    python -m benchmarks.prs --env multihop_qa --algos grpo --local --name multihop_qa_prs --set eval_episodes=400

Success is always the environment's exact match; only what training rewards differs. On multihop_qa the arms take the
small presets, and the format reward looks for the tags that the starter writes.
"""

from __future__ import annotations

from benchmarks.grid import RESULTS, Arm, grid_parser, markdown, plot, run_grid
from benchmarks.learning_curves import flags

PRS = ("--set", "reward=prs")
#: Keys of an environment's arms with PRS.
TAGS = {"multihop_qa": ("--set", 'prs_tags=["answer"]')}


def arms(env: str, algos: list[str]) -> list[Arm]:
    """Return each algorithm with the 0-1 reward and with PRS."""
    found = []
    for algo in algos:
        base = ("--algo", algo) if env == "guess_numbers" else flags(algo, env, presets=True)
        found += [Arm(algo, base), Arm(f"{algo} + prs", (*base, *PRS, *TAGS.get(env, ())))]
    return found


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "prs")
    parser.add_argument("--env", default="guess_numbers")
    parser.add_argument("--algos", nargs="+", default=["grpo", "vspo"])
    args = parser.parse_args()
    runs = run_grid(arms(args.env, args.algos), args)
    print(markdown(runs))
    plot(runs, RESULTS / f"{args.name}.png", f"{args.env}, {args.seeds} seeds")


if __name__ == "__main__":
    main()
