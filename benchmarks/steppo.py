"""StepPO against PPO at two discounts, and its three ablations, on guess_numbers.

    python -m benchmarks.steppo --local --jobs 2 --set eval_episodes=382

``learn s`` is the wall time of an iteration's learning part: critic and policy, forward and backward.
"""

from __future__ import annotations

from statistics import fmean

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid

PPO = ("--config", "tune_configs/recipes/guess_numbers_ppo.yaml")
STEPPO = ("--config", "tune_configs/recipes/guess_numbers_steppo.yaml")
TOKEN_RATIO = ("--set", "ratio_level=token", "--set", "clip_low=0.2", "--set", "clip_high=0.2")
TOKEN_GAE = ("--set", "steppo_credit=token_gae")
ARMS = (
    Arm("ppo, gamma 0.99", (*PPO, "--set", "gamma=0.99")),
    Arm("ppo, gamma 0.95", (*PPO, "--set", "gamma=0.95")),
    Arm("steppo", STEPPO),
    Arm("steppo, no KL", (*STEPPO, "--set", "kl_coef=0")),
    Arm("steppo, token GAE", (*STEPPO, *TOKEN_GAE)),
    Arm("steppo, token ratio", (*STEPPO, *TOKEN_RATIO)),
    Arm("steppo, both", (*STEPPO, *TOKEN_GAE, *TOKEN_RATIO, "--set", "loss_agg_mode=token-mean")),
)


def main() -> None:
    """Run, print the table and write the files."""
    args = grid_parser(__doc__, "steppo").parse_args()
    arms = run_grid(ARMS, args)
    print(markdown(arms, {"learn s": learn_seconds}))
    plot(arms, RESULTS / f"{args.name}.png", f"guess_numbers, {args.seeds} seeds")


def learn_seconds(runs: list[Run]) -> str:
    """Mean over seeds and iterations."""
    return f"{fmean(run['learn_seconds'] for run in runs):.2f}"


if __name__ == "__main__":
    main()
