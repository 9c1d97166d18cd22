"""The task sets of alfworld, and the game of a task: generated games, or the official games of a folder.

All families are equally frequent and take turns, so that the first tasks of a set are a balanced sample. ``test_seen``
has the layouts of ``train`` with other placements and goals, ``test_unseen`` layouts that ``train`` lacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

from rl_agents.envs.alfworld import AlfworldOptions
from rl_agents.envs.alfworld.families import FAMILIES, Family
from rl_agents.envs.alfworld.generator import generated_file
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.envs.alfworld.official import official_file, official_games
from rl_agents.envs.alfworld.scenes import FAMILY_ROOMS, TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from rl_agents.envs.task_sets import shuffled_ids

SEED = "alfworld-2025"
#: Compiled games kept in a process; one needs about 0.2 MB, and compiling it again 6 ms.
KEPT_GAMES = 256


#: Task set -> its layouts, the first number of a game, and the number of tasks (those of ALFWorld's test sets).
SETS = {
    "train": (TRAIN_LAYOUTS, 0, 1200),
    "test_seen": (TRAIN_LAYOUTS, 5000, 140),
    "test_unseen": (UNSEEN_LAYOUTS, 0, 134),
}


@lru_cache(maxsize=16)
def generated_tasks(size: str, split: str, count: int = 0) -> tuple[str, ...]:
    """Return the first ``count`` ids of ``train``, ``test_seen`` or ``test_unseen``; families take turns.

    Of the usual counts no two games are equal. A further training game may equal a test game with another number.
    """
    layouts, first, usual = SETS[split]
    streams = [_candidates(size, family, layouts, first) for family in FAMILIES]
    return tuple(next(streams[n % len(streams)]) for n in range(count or usual))


def _candidates(size: str, family: Family, layouts: range, first: int) -> Iterator[str]:
    """Yield ids of a family: every layout once, in random order, then again with the next number."""
    names = shuffled_ids((f"{room}-{n}" for room in FAMILY_ROOMS[family.short] for n in layouts), SEED)
    for number in itertools.count(first):
        yield from (f"{size}/{family.short}/{name}/{number}" for name in names)


def task_ids(split: str, options: AlfworldOptions) -> list[str]:
    name = "train" if split == "train" else f"test_{options.test}"
    if options.data:
        return list(official_games(options.data, name))
    return list(generated_tasks(options.size, name, options.train_tasks if split == "train" else 0))


@lru_cache(maxsize=KEPT_GAMES)
def compiled_game(task_id: str, data: str = "") -> NativeGame:
    """Return the compiled game of a task; the last `KEPT_GAMES` of a process are kept."""
    return NativeGame.compile(official_file(data, task_id) if data else generated_file(task_id))
