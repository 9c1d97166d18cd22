"""Progressive reward shaping against the 0-1 reward on guess_numbers, under GRPO and VSPO.

    python -m benchmarks.prs --local --jobs 2 --set iterations=40 eval_episodes=382

Success is always the environment's exact match; only what training rewards differs.
"""

from __future__ import annotations

from benchmarks.grid import RESULTS, Arm, grid_parser, markdown, plot, run_grid

PRS = ("--set", "reward=prs")
ARMS = tuple(
    Arm(f"{algo}{name}", ("--algo", algo, *keys))
    for algo in ("grpo", "vspo")
    for name, keys in (("", ()), (" + prs", PRS))
)


def main() -> None:
    """Run, print the table and write the files."""
    args = grid_parser(__doc__, "prs").parse_args()
    arms = run_grid(ARMS, args)
    print(markdown(arms))
    plot(arms, RESULTS / f"{args.name}.png", f"guess_numbers, {args.seeds} seeds")


if __name__ == "__main__":
    main()
