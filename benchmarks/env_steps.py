"""Cost of a step of every environment, without a model: ``python -m benchmarks.env_steps``.

Each environment has the settings of its warm-start model. The demonstrator plays once, unmeasured. Then a new
process repeats its actions twice: first every task is new, then each is known. Times are CPU times of one thread.
The first reset loads shared data (panels, a shop's index, imports) and is reported separately. Environments whose
data or packages are missing are skipped.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.report import command_line, write_result
from benchmarks.timing import in_new_process, spent
from rl_agents.envs.base import ENVIRONMENTS, TextEnv, env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError

#: A recorded episode: its task, and (observation, action) of every turn.
Episode = tuple[str, list[tuple[str, str]]]


class Recording(NamedTuple):
    env: str
    options: dict[str, Any]
    episodes: list[Episode]


def main() -> None:
    args = command_line(__doc__, {"envs": list(ENVIRONMENTS), "episodes": 100, "rounds": 2}).parse_args()
    recordings = []
    for env in args.envs:
        try:
            recordings.append(record(env, args.episodes))
        except (InputError, ImportError) as error:
            print(f"{env}: skipped: {error}")
    rounds = [
        {f"{each.env}: {what}": value for each in recordings for what, value in in_new_process(replay, each).items()}
        for _ in range(args.rounds)
    ]
    write_result("env_steps", "python -m benchmarks.env_steps", rounds)


def record(env: str, episodes: int) -> Recording:
    """Record the demonstrator on up to ``episodes`` test tasks with the options of the warm-start model."""
    recipe, rng = starter_spec(env), random.Random(0)
    options = {key.removeprefix("env."): value for key, value in recipe.defaults.items() if key.startswith("env.")}
    read, tasks = read_env_options(env_spec(env), options), task_ids(env, "test", options)[:episodes]
    return Recording(env, options, [(task, recipe.demonstrate(task, rng, read)) for task in tasks])


def replay(recording: Recording) -> dict[str, float]:
    """Replay all episodes twice on one environment; return CPU milliseconds of resets and steps."""
    started = time.process_time()
    env = make_env(recording.env, recording.options)
    env.reset(options={"task_id": recording.episodes[0][0]})
    first = time.process_time() - started
    new_resets, new_steps = _play(env, recording.episodes[1:])
    resets, steps = _play(env, recording.episodes[1:])
    return {
        "first reset ms": first * 1e3,
        "reset ms, new task": statistics.fmean(new_resets),
        "step ms, new task": statistics.fmean(new_steps),
        "reset ms": statistics.fmean(resets),
        "step ms": statistics.fmean(steps),
        "step ms, 99 %": sorted(steps)[int(0.99 * len(steps))],
        "steps per CPU-s": 1e3 / statistics.fmean(steps),
    }


def _play(env: TextEnv, episodes: Sequence[Episode]) -> tuple[list[float], list[float]]:
    """Replay the episodes; return CPU milliseconds of every reset and every step.

    Raises:
        RuntimeError: an observation differs from the recorded one.
    """
    resets: list[float] = []
    steps: list[float] = []
    for task, turns in episodes:
        resets.append(spent(lambda task=task: env.reset(options={"task_id": task}))[1] * 1e3)
        told: list[str] = []
        for _, action in turns:
            steps.append(spent(lambda action=action, told=told: told.append(env.step(action)[0]))[1] * 1e3)
        # A demonstrator may have read more than the environment returns, such as a request to answer now.
        if not all(read.startswith(said) for said, (read, _) in zip(told, turns[1:], strict=False)):
            raise RuntimeError(f"task {task}: the replay differs from the recording")
    return resets, steps


if __name__ == "__main__":
    main()
