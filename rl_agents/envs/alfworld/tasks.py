"""The task sets of alfworld, and the game of a task: generated ones, or the official ones of a folder.

Without ``data`` a task is a generated game such as ``small/heat/kitchen-3/17`` (see `generator` and `panel`); with it,
a trial of the download such as ``valid_seen/pick_and_place_simple-Mug-None-Desk-308/trial_T2`` (see `official`).
"""

from __future__ import annotations

import sys
from functools import lru_cache

from rl_agents.envs.alfworld.game_file import GameFile
from rl_agents.envs.alfworld.generator import generated_file
from rl_agents.envs.alfworld.native import NativeGame
from rl_agents.envs.alfworld.official import official_file, official_games
from rl_agents.envs.alfworld.panel import generated_tasks, training_tasks
from rl_agents.envs.alfworld.spec import AlfworldOptions
from rl_agents.errors import unknown

#: Compiled games kept in a process; one needs about 0.2 MB, and compiling it again 6 ms.
KEPT_GAMES = 256


def task_ids(split: str, options: AlfworldOptions) -> list[str]:
    """Return the ids of ``train`` or ``test``: of generated games, or of the folder ``options.data``.

    Raises:
        InputError: a folder that is missing or empty, or games in it that cannot be used.
    """
    if split not in ("train", "test"):
        raise unknown("split", split, ("train", "test"))
    name = "train" if split == "train" else f"test_{options.test}"
    if options.data:
        return list(_official_ids(options.data, name, options.skip_bad_games))
    if split == "train":
        return list(training_tasks(options.size, options.train_tasks))
    return generated_tasks(options.size, name)


@lru_cache(maxsize=8)
def _official_ids(data: str, split: str, skip_bad_games: bool) -> tuple[str, ...]:
    listing = official_games(data, split, skip_bad_games)
    if len(listing.games) < listing.trials:
        print(f"[rl_agents] alfworld {split}: {listing.report()}", file=sys.stderr, flush=True)
    return tuple(game.task_id for game in listing.games)


def find_game(task_id: str, data: str = "") -> GameFile:
    """Return the game file of a task.

    Raises:
        InputError: no such task, or its game cannot be used.
    """
    return official_file(data, task_id) if data else generated_file(task_id)


@lru_cache(maxsize=KEPT_GAMES)
def compiled_game(task_id: str, data: str = "") -> NativeGame:
    """Return the game of a task for the native engine; the last `KEPT_GAMES` of a process are kept.

    Raises:
        InputError: see `find_game`; or the game cannot be compiled.
    """
    return NativeGame.compile(find_game(task_id, data))
