"""What T3 saves and what it costs: ``python -m benchmarks.t3 --local --jobs 2 --set eval_episodes=382``.

Every algorithm trains with and without truncation from the same starter and is evaluated without truncation at
temperature 1. ``--rules`` are the environment's progress rules (``env.progress``), ``--windows`` T3's k.
"""

from __future__ import annotations

import itertools
from argparse import Namespace
from statistics import fmean

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid
from benchmarks.learning_curves import flags


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "t3")
    parser.add_argument("--env", default="guess_numbers")
    parser.add_argument("--algos", nargs="+", default=["grpo", "ppo", "gspo"])
    parser.add_argument("--windows", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--rules", nargs="+", default=["consistent"], help="`default` leaves env.progress as it is")
    parser.add_argument("--after", nargs="+", default=["force_answer"])
    parser.add_argument("--presets", action="store_true")
    args = parser.parse_args()
    arms = run_grid([arm for algo in args.algos for arm in algorithm_arms(algo, args)], args)
    print(markdown(arms, {"truncated": truncated, "turns": turns}))
    plot(arms, RESULTS / f"{args.name}.png", f"{args.env}, {args.seeds} seeds")


def algorithm_arms(algo: str, args: Namespace) -> list[Arm]:
    """Return the untruncated arm and one for every rule, ending and window."""
    base = flags(algo, args.env, args.presets)
    arms = [Arm(algo, base)]
    for rule, after, window in itertools.product(args.rules, args.after, args.windows):
        keys = {"truncation": "t3", "truncation_window": window, "truncation_after": after}
        keys |= {} if rule == "default" else {"env.progress": rule}
        name = f"{algo} + T3, {'' if rule == 'default' else rule + ', '}{after}, k={window}"
        arms.append(Arm(name, (*base, *(part for key, value in keys.items() for part in ("--set", f"{key}={value}")))))
    return arms


def truncated(runs: list[Run]) -> str:
    """Share of the training episodes that were cut."""
    return f"{fmean(run.get('truncation_ratio', 0.0) for run in runs):.2f}"


def turns(runs: list[Run]) -> str:
    """Mean turns of a training episode."""
    return f"{fmean(run['turns'] for run in runs):.2f}"


if __name__ == "__main__":
    main()
