"""The task sets of alfworld, and the game of a task: generated games, or the official games of a folder.

The test sets of generated games have the sizes of ALFWorld's valid_seen and valid_unseen. All families are equally
frequent and take turns, so that the first tasks of a set are a balanced sample. ``test_seen`` has the layouts of
``train`` with other placements and goals, ``test_unseen`` layouts that ``train`` lacks. No game occurs twice, under any
id. The panel files also hold the first 12 digits of each game's sha256.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from rl_agents.envs.alfworld import AlfworldOptions
from rl_agents.envs.alfworld.families import FAMILIES, Family
from rl_agents.envs.alfworld.generator import generated_file
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.envs.alfworld.official import official_file, official_games
from rl_agents.envs.alfworld.scenes import FAMILY_ROOMS, TRAIN_LAYOUTS
from rl_agents.envs.panels import panel_ids, shuffled_ids

SEED = "alfworld-2025"
#: Compiled games kept in a process; one needs about 0.2 MB, and compiling it again 6 ms.
KEPT_GAMES = 256


def generated_tasks(size: str, split: str) -> list[str]:
    """Return the task ids of ``train``, ``test_seen`` or ``test_unseen``."""
    return panel_ids(Path(__file__).with_name(f"panel_{size}.json"), split)


@lru_cache(maxsize=4)
def training_tasks(size: str, count: int) -> tuple[str, ...]:
    """Return ``count`` training ids: the first of the panel, and beyond it those of further numbers.

    Families take turns throughout. Ids differ from those of the test sets. Only games of the panel were compared with
    the test games: a further game may equal a test game with another number.
    """
    tasks = generated_tasks(size, "train")
    if count <= len(tasks):
        return tuple(tasks[:count])
    used = set(tasks)
    streams = [(task for task in _candidates(size, family) if task not in used) for family in FAMILIES]
    more = (next(streams[n % len(streams)]) for n in range(count - len(tasks)))
    return (*tasks, *more)


def _candidates(size: str, family: Family) -> Iterator[str]:
    """Yield training ids of a family: every layout once, in random order, then again with the next number."""
    names = shuffled_ids((f"{room}-{n}" for room in FAMILY_ROOMS[family.short] for n in TRAIN_LAYOUTS), SEED)
    for number in itertools.count():
        yield from (f"{size}/{family.short}/{name}/{number}" for name in names)


def task_ids(split: str, options: AlfworldOptions) -> list[str]:
    """Return the ids of ``train`` or ``test``: of generated games, or of the folder ``options.data``."""
    name = "train" if split == "train" else f"test_{options.test}"
    if options.data:
        return list(official_games(options.data, name))
    if split == "train":
        return list(training_tasks(options.size, options.train_tasks))
    return generated_tasks(options.size, name)


@lru_cache(maxsize=KEPT_GAMES)
def compiled_game(task_id: str, data: str = "") -> NativeGame:
    """Return the compiled game of a task; the last `KEPT_GAMES` of a process are kept."""
    return NativeGame.compile(official_file(data, task_id) if data else generated_file(task_id))
