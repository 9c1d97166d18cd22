"""Asynchronous training against lag 0: wall time to as many optimizer steps, and the success that they bring.

    python -m benchmarks.asynchrony --seeds 3                 # tools that wait (benchmarks/slow_tools.py)
    python -m benchmarks.asynchrony --seeds 3 --quick-tools   # none: what overlap alone brings on this machine

Every arm makes the same number of optimizer steps. Learner idle: the part of an iteration in which it waited for
rollouts; engine idle: in which no response was being sampled. Writes results/asynchrony*.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import fmean

from benchmarks.grid import Arm, Run, grid_parser, markdown, run_cell, run_grid
from benchmarks.slow_tools import start_session
from rl_agents.config import Settings
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.warm_start import ensure_model

#: Iterations of 8 groups of 8 episodes; one evaluation before and one after.
COMMON = ("tasks_per_iteration=8", "group_size=8", "eval_interval=0", "eval_episodes=382", "checkpoint_interval=0")
LAGS, STALENESS = (1, 2), (1, 2, 4)


def arms(iterations: int) -> list[Arm]:
    """Return lag 0, which learns from nothing stale, and the asynchronous arms."""
    base = ("--algo", "grpo", "--iterations", str(iterations), *(part for key in COMMON for part in ("--set", key)))
    lags = [Arm(f"lag {lag}", (*base, "--set", f"async_level={lag}")) for lag in LAGS]
    streams = [
        Arm(f"stream, staleness {most}", (*base, "--set", "stream=true", "--set", f"max_staleness={most}"))
        for most in STALENESS
    ]
    return [Arm("lag 0", base), *lags, *streams]


def cell(flags: Sequence[str], seed: int, slow: bool, evaluations: Mapping[str, Sequence[str]] | None = None) -> Run:
    """Run the command line in a Ray session of its own."""
    if slow:
        start_session(actors=3)
    return run_cell(flags, seed, evaluations)


def main() -> None:
    """Run, print the table and write the files."""
    parser = grid_parser(__doc__, "asynchrony")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--quick-tools", action="store_true", help="environments that answer at once")
    args = parser.parse_args()
    args.name += "_quick" if args.quick_tools else ""
    # Here, where tools are quick: its demonstrations are thousands of steps.
    ensure_model(Settings.from_dict({"env": "guess_numbers"}), AgentAlgorithm.from_settings)
    runs = run_grid(arms(args.iterations), args, partial(cell, slow=not args.quick_tools))
    base = seconds(runs["lag 0"])
    columns = {
        "seconds an iteration": lambda own: f"{seconds(own):.1f}",
        "times lag 0's speed": lambda own: f"{base / seconds(own):.2f}",
        "engine idle": lambda own: f"{1 - fmean(run['engine_busy'] for run in own):.2f}",
        "learner idle": lambda own: f"{fmean(waited(run) / run['iteration_seconds'] for run in own):.2f}",
        "staleness mean (most)": lambda own: (
            f"{fmean(run['staleness'] for run in own):.1f} ({max(run['staleness_max'] for run in own):.1f})"
        ),
    }
    print(markdown(runs, columns))


def seconds(runs: Sequence[Run]) -> float:
    """Mean seconds of an iteration."""
    return fmean(run["iteration_seconds"] for run in runs)


def waited(run: Run) -> float:
    """Mean seconds of an iteration in which the learner waited for rollouts."""
    return float(run.get("wait_seconds", run["rollout_seconds"]))


if __name__ == "__main__":
    main()
