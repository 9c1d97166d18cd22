"""T3's four further tasks: GRPO, StepPO and GRPO with T3 from each environment's own starter.

    python -m benchmarks.active_reasoning --local --jobs 2           # all four, T3 with their default windows
    python -m benchmarks.active_reasoning --local --jobs 2 --envs circuit_decoding --algos ppo gspo --windows 1 2 4

Writes benchmarks/results/active_ENV.json and active_ENV.png. The arms are the small presets (40 iterations of 128
episodes); all are evaluated without truncation on 300 test episodes at temperature 1. GRPO's agents of circuit_decoding
and preference_estimation are then evaluated out of distribution, on the settings of T3's table 2 as far as the small
model can read them. Runs on file are not repeated, so that the second command adds its arms to those of the first.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.grid import RESULTS, Arm, Run, grid_parser, markdown, plot, run_grid, text
from benchmarks.learning_curves import flags
from benchmarks.t3 import algorithm_arms, truncated, turns
from rl_agents.envs.base import env_spec
from rl_agents.reporting.statistics import student_interval

EPISODES, OTHER_EPISODES = 300, 150


def set_flags(keys: Mapping[str, Any]) -> tuple[str, ...]:
    """Return ``--set`` with every key, for ``run.py eval``."""
    return ("--set", *(f"{key}={value}" for key, value in keys.items()))


def _circuits(circuits: int, candidates: int) -> tuple[str, ...]:
    """Fourteen turns, as in the released code: ten do not suffice for four circuits. Lists need longer responses."""
    turns = {"max_turns": 14, "max_model_len": 1024, "max_response_tokens": 64}
    return set_flags({"env.circuits": circuits, "env.candidates": candidates, **turns})


#: What else an environment's agents play: the settings of T3's table 2. Only 27 balanced movies are different.
OUT_OF_DISTRIBUTION: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "circuit_decoding": {
        f"{circuits}-{candidates}": _circuits(circuits, candidates)
        for circuits, candidates in ((2, 10), (2, 15), (2, 20), (2, 25), (2, 30), (3, 10))
    },
    "preference_estimation": {
        **{f"{movies} movies": set_flags({"env.movies": movies}) for movies in (5, 15, 20, 25)},
        **{sampling: set_flags({"env.sampling": sampling}) for sampling in ("uniform", "min-max", "max")},
    },
}


def main() -> None:
    """Run, print the tables and write the files, environment by environment."""
    parser = grid_parser(__doc__, "active")
    parser.add_argument("--envs", nargs="+", default=[
        "circuit_decoding", "preference_estimation", "movie_recommendation", "situation_puzzles"])  # fmt: skip
    parser.add_argument("--algos", nargs="+", default=["grpo"], help="each without T3, and with it for every window")
    parser.add_argument("--plain", nargs="*", default=["steppo"], help="each without T3 only")
    parser.add_argument("--windows", nargs="+", type=int, help="T3's k (default: the environment's)")
    args = parser.parse_args()
    args.set = [f"eval_episodes={EPISODES}", *args.set]
    prefix = args.name
    for env in args.envs:
        args.name = f"{prefix}_{env}"
        runs = run_grid(environment_arms(env, args), args)
        print(f"\n{env}\n\n{markdown(runs, {'truncated': truncated, 'turns': turns})}\n\n{other_tasks(runs)}")
        plot(runs, RESULTS / f"{args.name}.png", f"{env}, {args.seeds} seeds")


def environment_arms(env: str, args: Namespace) -> list[Arm]:
    """Return the arms of one environment; GRPO, and with it T3's default window, is evaluated on other tasks too."""
    default = env_spec(env).progress_window
    chosen = Namespace(env=env, presets=True, rules=["default"], after=["force_answer"])
    chosen.windows = args.windows or [default]
    arms = [arm for algo in args.algos for arm in algorithm_arms(algo, chosen)]
    arms += [Arm(algo, flags(algo, env, True)) for algo in args.plain]
    chosen.windows = [default]
    traveling = {arm.name for arm in algorithm_arms("grpo", chosen)}
    local = ("--episodes", str(OTHER_EPISODES), *(("--local",) if args.local else ()))
    evaluations = {name: (*local, *keys) for name, keys in OUT_OF_DISTRIBUTION.get(env, {}).items()}
    return [replace(arm, evaluations=evaluations) if arm.name in traveling else arm for arm in arms]


def other_tasks(arms: Mapping[str, list[Run]]) -> str:
    """Return a Markdown table: success out of distribution, mean over the seeds with its 95 % interval."""
    lines: list[str] = []
    for arm, runs in arms.items():
        if "evaluations" in runs[0]:
            names = list(runs[0]["evaluations"])
            lines = lines or [f"| arm | {' | '.join(names)} |", f"|{'---|' * (len(names) + 1)}"]
            rates = ([run["evaluations"][name]["mean"] for run in runs] for name in names)
            lines.append(f"| {arm} | {' | '.join(text(student_interval(rate).to_dict()) for rate in rates)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
