"""What stale rollouts cost, and what corrections give back: success over lag (AReaL's table 3, at the level of steps).

    python -m benchmarks.staleness --jobs 2                                # all, resumable
    python -m benchmarks.staleness --methods grpo --lags 0 8 --seeds 1     # a part of it, into the same file

One process per run, everything in it (``--local``): ``async_level=k`` samples batch i with the weights of iteration
i - k and gives what it gives with actors. Corrections, with the logprobs of the learner as proximal policy except in
the first:

    naive      ratios against the weights that sampled (old_logprobs=engine)
    tis        the default: one weight per token (grpo) or step (steppo, 3spo), cut at 2
    decoupled  AReaL's code: one weight per token, tokens beyond 5 dropped
    icepop     the same, and tokens below 0.5 dropped

At lag 0 weights are those that sampled, so one arm stands for all. A search has no lag above 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from statistics import fmean

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, plot, run_grid, summarize, text

LAGS = (0, 1, 2, 4, 8)
LEARNER = ("old_logprobs=learner",)
CORRECTIONS: Mapping[str, tuple[str, ...]] = {
    "naive": ("old_logprobs=engine",),
    "tis": (),
    "decoupled": (*LEARNER, "rollout_correction=icepop", "rollout_correction_bounds=[0,5]"),
    "icepop": (*LEARNER, "rollout_correction=icepop", "rollout_correction_bounds=[0.5,5]"),
}
#: Sizes at which a run takes about half a minute on one core, evaluations included.
METHODS: Mapping[str, tuple[str, ...]] = {
    "grpo": ("iterations=40", "tasks_per_iteration=16"),
    "steppo": ("iterations=30", "tasks_per_iteration=128"),
    "3spo": ("iterations=20",),
}
EVALUATION = ("eval_episodes=382", "eval_interval=0", "save_pool=false")


def main() -> None:
    """Run, print the table and write the files."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.nice(5)
    parser = grid_parser(__doc__, "staleness")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--lags", nargs="+", type=int, default=list(LAGS))
    parser.add_argument("--corrections", nargs="+", default=list(CORRECTIONS), choices=list(CORRECTIONS))
    args = parser.parse_args()
    args.local = True
    chosen = [
        arm(method, lag, correction)
        for method in args.methods
        for lag in args.lags
        for correction in (args.corrections if lag else ["naive"])
        if method != "3spo" or lag <= 1
    ]
    arms = run_grid(chosen, args)
    for method in args.methods:
        print(f"\n{table(method, args.lags, args.corrections, arms)}")
    plot(arms, RESULTS / f"{args.name}.png", f"guess_numbers, {args.seeds} seeds")


def arm(method: str, lag: int, correction: str) -> Arm:
    """One cell of the table."""
    keys = (*METHODS[method], *EVALUATION, *((f"async_level={lag}", *CORRECTIONS[correction]) if lag else ()))
    flags = ("--config", f"tune_configs/recipes/guess_numbers_{method}.yaml")
    return Arm(named(method, lag, correction), (*flags, *(part for key in keys for part in ("--set", key))))


def named(method: str, lag: int, correction: str) -> str:
    """The arm's name."""
    return f"{method}, lag {lag}, {correction}" if lag else f"{method}, lag 0"


def table(method: str, lags: list[int], corrections: list[str], arms: Mapping[str, list[Run]]) -> str:
    """Test success at the end by correction and lag; below it the mean effective sample size, where there is one."""
    lines = [f"| {method} | {' | '.join(f'lag {lag}' for lag in lags)} |", f"|{'---|' * (len(lags) + 1)}"]
    for correction in corrections:
        found = [arms.get(named(method, lag, correction)) for lag in lags]
        lines.append(
            f"| {correction} | {' | '.join(text(summarize(runs)['end']) if runs else '-' for runs in found)} |"
        )
        if any(runs and "ess" in runs[0] for runs in found):
            lines.append(f"| effective sample size | {' | '.join(effective(runs) for runs in found)} |")
    return "\n".join(lines)


def effective(runs: list[Run] | None) -> str:
    """Mean over iterations and seeds."""
    return f"{fmean(run['ess'] for run in runs):.2f}" if runs and "ess" in runs[0] else "-"


if __name__ == "__main__":
    main()
