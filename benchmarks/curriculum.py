"""Uniform draws and the difficulty curriculum at equal sampled tokens: ``python -m benchmarks.curriculum``.

Tasks of guess_numbers: the first ten training and test tasks of each of its nine sub-groups, which differ in the number
of digits, symbols and candidates; the warm-start model solves between 41% and 84% of them. Both arms begin with this
model and use the same keys; pairs have the same seed. Finished runs are not repeated.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.grid import Run, run_cell
from benchmarks.referee import mean_until, read_at
from benchmarks.report import command_line, load, markdown, part_of, write_figures
from rl_agents.envs.base import register
from rl_agents.envs.guess_numbers import SPEC as GUESS_NUMBERS
from rl_agents.envs.guess_numbers import GuessNumbersOptions, tasks
from rl_agents.envs.guess_numbers.env import GuessNumbersEnv
from rl_agents.envs.spec import EnvSpec
from rl_agents.reporting.statistics import Interval, student_interval
from rl_agents.trainer.algorithm import AgentConfig

NAME = "guess_numbers_kinds"
#: Tasks of a sub-group in each split, and sampled tokens at which the arms are compared.
TASKS, BUDGET = 10, 60_000
SAMPLINGS = ("uniform", "difficulty")
KEYS = (
    "tasks_per_iteration=8", "group_size=8", "env.prompt=compact", "max_model_len=256", "max_response_tokens=24",
    "eval_interval=8", "eval_episodes=180", "save_pool=false", "save_trajectories=0", "collapse_monitor=off",
    "checkpoint_interval=0",
)  # fmt: skip
FIGURES = ("success at the end", "mean of the curve", "episodes without gradient")

make = GuessNumbersEnv


def task_ids(split: str, options: GuessNumbersOptions) -> list[str]:
    found, counts = [], Counter[str]()
    for task in tasks.task_ids(split, options):
        counts[task.partition("/")[0]] += 1
        if counts[task.partition("/")[0]] <= TASKS:
            found.append(task)
    return found


def flags(sampling: str, iterations: int, model: str) -> list[str]:
    named = ["--algo", "grpo", "--env", NAME, "--model", model, "--iterations", str(iterations), "--local"]
    return [*named, "--set", *KEYS, f"task_sampling={sampling}"]


def figures(run: Run) -> dict[str, float]:
    """Return a run's numbers up to `BUDGET` sampled tokens; raises `ShortCurve` if it has fewer."""
    tokens, success = list(run["tokens"].values()), list(run["success"].values())
    evaluated = [int(iteration) for iteration in run["tokens"]]
    used = np.interp(range(1, len(run["zero_advantage"]) + 1), evaluated, tokens)
    within = [share for share, after in zip(run["zero_advantage"], used, strict=True) if after <= BUDGET]
    values = (read_at(BUDGET, tokens, success), mean_until(BUDGET, tokens, success), fmean(within))
    return dict(zip(FIGURES, values, strict=True))


def summarize(runs: Mapping[str, Mapping[str, Run]]) -> dict[str, Any]:
    """Return the mean of each arm, and the paired differences with Student's interval over the seeds."""
    uniform, ours = ({seed: figures(run) for seed, run in runs.get(name, {}).items()} for name in SAMPLINGS)
    seeds = sorted(uniform.keys() & ours.keys())
    return {
        name: {
            "uniform": fmean(uniform[seed][name] for seed in seeds),
            "difficulty": fmean(ours[seed][name] for seed in seeds),
            "difference": student_interval([ours[seed][name] - uniform[seed][name] for seed in seeds]).to_dict(),
        }
        for name in FIGURES
        if seeds
    }  # fmt: skip


def table() -> str:
    """Return the table of docs/how-to/curriculum.md."""
    rows = [
        [name, *(f"{own[sampling]:.3f}" for sampling in SAMPLINGS), f"{Interval(**own['difference']):+.3f}"]
        for name, own in load("curriculum")["summary"].items()
    ]  # fmt: skip
    return markdown(["figure", *SAMPLINGS, "difference"], rows)


def main() -> None:
    args = command_line(__doc__, {"seeds": 5, "iterations": 40}).parse_args()
    register(EnvSpec(NAME, GUESS_NUMBERS.summary, "-", GuessNumbersOptions, 10, "benchmarks.curriculum",
                     blocking="inline"))  # fmt: skip
    model = AgentConfig().environment("guess_numbers").training(algo="grpo").local().completed().model_dir
    runs: dict[str, dict[str, Run]] = part_of("curriculum", "runs")
    for seed in map(str, range(args.seeds)):
        for sampling in SAMPLINGS:
            own = runs.setdefault(sampling, {})
            if seed not in own:
                own[seed] = run_cell(flags(sampling, args.iterations, model), int(seed))
                print(f"{sampling} {seed}: {own[seed]['success']}", file=sys.stderr)
            write_figures("curriculum", f"python -m benchmarks.curriculum --seeds {args.seeds}",
                          {"summary": summarize(runs), "runs": runs})  # fmt: skip
    print(table())


if __name__ == "__main__":
    main()
