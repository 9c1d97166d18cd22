"""VSPO against GRPO on guess_numbers: silent tasks, and updates until a target.

    python -m benchmarks.vspo --local --jobs 2 --set group_size=4 tasks_per_iteration=32 eval_episodes=382

Small groups agree often, which is where VSPO has something to do. ``updates to 0.70`` is the first iteration at which
the mean success of five iterations of training reaches 0.70.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid

TARGET, WINDOW = 0.70, 5
VSPO = ("--algo", "vspo")
ARMS = (
    Arm("grpo", ("--algo", "grpo")),
    Arm("dapo", ("--algo", "dapo")),
    Arm("vspo", VSPO),
    Arm("vspo, random draws", (*VSPO, "--set", "vspo_mode=random")),
    Arm("vspo, no clip", (*VSPO, "--set", "vspo_clip=false")),
    Arm("vspo, alpha 4", (*VSPO, "--set", "vspo_alpha=4")),
    Arm("vspo, T 1", (*VSPO, "--set", "vspo_temperature=1")),
)


def main() -> None:
    """Run, print the table and write the files."""
    args = grid_parser(__doc__, "vspo").parse_args()
    arms = run_grid(ARMS, args)
    print(markdown(arms, {f"updates to {TARGET:.2f}": updates}))
    plot(arms, RESULTS / f"{args.name}.png", f"guess_numbers, {args.seeds} seeds")


def updates(runs: list[Run]) -> str:
    """Mean over the seeds of the iterations until the target; a seed that never reached it counts as its length."""
    return f"{fmean(first_reaching(run['training_success']) for run in runs):.1f}"


def first_reaching(successes: list[float], target: float = TARGET, window: int = WINDOW) -> int:
    """First iteration (from 1) at which the mean of the last ``window`` is at the target; else the length."""
    ends = range(window, len(successes) + 1)
    return next((end for end in ends if fmean(successes[end - window : end]) >= target), len(successes))


if __name__ == "__main__":
    main()
