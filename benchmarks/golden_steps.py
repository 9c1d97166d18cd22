"""Difficulty of tasks by golden steps (StepPO, figure 7): ``python -m benchmarks.golden_steps RUN...``.

For each run on alfworld, from the episodes in its pool: success and delta steps (steps of the agent minus golden steps)
by golden steps. The paper counts the steps of human annotations; here they are those of the scripted expert.
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from benchmarks.report import markdown
from rl_agents.envs.alfworld import AlfworldOptions
from rl_agents.envs.alfworld.demonstrations import EXPERT
from rl_agents.envs.base import make_env
from rl_agents.errors import InputError
from rl_agents.reporting.run_folder import RunFolder, restored_settings
from rl_agents.store.reader import PoolReader, StoreQuery


class Played(NamedTuple):
    """An episode: its task, the agent's steps, and whether it solved the task."""

    task: str
    steps: int
    success: bool


class Difficulty(NamedTuple):
    """Episodes of tasks with the same golden steps: their number, success rate and mean delta steps."""

    golden: int
    episodes: int
    success: float
    delta: float


def difficulty(played: Iterable[Played], golden: Mapping[str, int]) -> list[Difficulty]:
    """Group episodes by the golden steps of their tasks, the fewest first; other tasks are excluded."""
    groups: dict[int, list[Played]] = defaultdict(list)
    for one in played:
        if one.task in golden:
            groups[golden[one.task]].append(one)
    return [
        Difficulty(steps, len(own), fmean(p.success for p in own), fmean(p.steps for p in own) - steps)
        for steps, own in sorted(groups.items())
    ]


def of_run(run: Path) -> list[Difficulty]:
    """Group the episodes of a run, including evaluations in its pool.

    Raises:
        InputError: the run has no pool, or is not on alfworld.
    """
    folder = RunFolder(run)
    settings = restored_settings(folder.config_file)
    options = make_env(settings.env, settings.env_options).options
    if not isinstance(options, AlfworldOptions):
        raise InputError(f"{run}: golden steps are those of alfworld, not of {settings.env}")
    with PoolReader(folder.pool) as reader:
        stored = reader.stored(StoreQuery(kind="episode", failed=False))
        played = [Played(s.session.task_id, s.steps, s.session.success) for s in stored]
    return difficulty(played, {one.task: len(EXPERT(one.task, random.Random(0), options)) for one in played})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="+", type=Path)
    for run in parser.parse_args().run:
        rows = [(f"{r.golden}", f"{r.episodes}", f"{r.success:.2f}", f"{r.delta:+.1f}") for r in of_run(run)]
        print(f"{run}\n\n{markdown(('golden steps', 'episodes', 'success', 'delta steps'), rows)}\n")


if __name__ == "__main__":
    main()
