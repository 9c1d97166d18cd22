"""What more env runners and engines give on one machine: ``python -m benchmarks.env_runner_curve``.

The same groups of guess_numbers are rolled out with 1, 2 and 4 env runners and with 1 and 2 torch engines, once with
steps without cost and once with steps that compute for `BUSY_S`. Counted is the CPU time of each process, which other
work on the machine hardly changes:

    tokens per second = sampled tokens / CPU seconds of the busiest process

is what the rollouts reach if each process has a core of its own, and the busiest process is what bounds them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray

from benchmarks.engine_choice import SIZES, WARM_UP, Rollouts, Round, untrained_model
from benchmarks.report import command_line, load, markdown, summarize, write_figures
from benchmarks.slow_tools import start_session
from rl_agents.algorithms import Settings

#: Env runners and engines of each line.
CASES = [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)]
ROLES = ("driver", "env runner", "engine")
#: CPU seconds of a step that computes, such as a simulator's.
BUSY_S = 0.01
#: Environment variable with the CPU seconds of a step, set in the processes of a run.
STEP_S = "RL_AGENTS_STEP_S"


def install() -> None:
    """Make the steps of guess_numbers compute; in every process of a run."""
    from rl_agents.envs.guess_numbers.env import GuessNumbersEnv

    quick_step = GuessNumbersEnv.step

    def step(self: Any, action: str) -> Any:
        end = time.thread_time() + float(os.environ[STEP_S])
        while time.thread_time() < end:
            sum(range(1000))
        return quick_step(self, action)

    GuessNumbersEnv.step = step  # type: ignore[method-assign]


def figures(played: Round, runners: int) -> dict[str, float]:
    """Return tokens per second, and microseconds of CPU per token: of all processes, of the busiest of each role."""
    driver, actors = played.cpu_s[:1], played.cpu_s[1:]
    roles = {"driver": driver, "env runner": actors[:runners], "engine": actors[runners:]}
    us = {role: 1e6 * max(own) / played.tokens for role, own in roles.items()}
    return {"tokens per s": 1e6 / max(us.values()), "all": 1e6 * sum(played.cpu_s) / played.tokens, **us}


def measure(keys: dict[str, Any], step_s: float, case: tuple[int, int], rounds: int) -> dict[str, Any]:
    """Return the figures of one line: medians over the rounds after the first ones."""
    runners, engines = case
    start_session(runners + engines, "benchmarks.env_runner_curve.install", {STEP_S: str(step_s)})
    settings = Settings.from_dict({**keys, "num_env_runners": runners, "num_engines": engines})
    rollouts = Rollouts(settings, ("torch", "separate"))
    found = [figures(rollouts.play(number), runners) for number in range(WARM_UP + rounds)][WARM_UP:]
    rollouts.close()
    ray.shutdown()
    return {"step_s": step_s, "env runners": runners, "engines": engines, **summarize(found)}


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the lines with what bounds each."""
    head = ("a step computes", "env runners", "engines", "tokens/s", "CPU µs per token", *ROLES, "bound by")
    rows = []
    for line in lines:
        us = {role: line[role]["median"] for role in ROLES}
        sizes = [f"{1000 * line['step_s']:.0f} ms", str(line["env runners"]), str(line["engines"])]
        counted = [f"{line['tokens per s']['median']:,.0f}", f"{line['all']['median']:.0f}"]
        rows.append([*sizes, *counted, *(f"{own:.0f}" for own in us.values()), max(us, key=lambda role: us[role])])
    return markdown(head, rows)


def table_on_file() -> str:
    return table(load("env_runner_curve")["lines"])


def main() -> None:
    args = command_line(__doc__, {"rounds": 4}).parse_args()
    lines: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = untrained_model(Path(folder), "guess_numbers", *SIZES["2 M"])
        keys = {
            "algo": "grpo",
            "env": "guess_numbers",
            "model": model,
            "tasks_per_iteration": 16,
            "max_turns": 4,
        }
        for step_s in (0.0, BUSY_S):
            for case in CASES:
                lines.append(measure(keys, step_s, case, args.rounds))
                print(table(lines[-1:]).splitlines()[-1], flush=True)
    print(table(lines))
    write_figures("env_runner_curve", f"python -m benchmarks.env_runner_curve --rounds {args.rounds}", {"lines": lines})


if __name__ == "__main__":
    main()
