"""The official ALFWorld games in a folder as ``alfworld-download`` writes it.

    <data>/json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/{traj_data.json,game.tw-pddl,initial_state.pddl}

A task id is the path of the trial under ``json_2.1.1``. As in ALFWorld, tasks with movable receptacles or slices,
trials without a game file (many are missing in the download) and unsolvable games are excluded and counted. A game file
is JSON with ``pddl_domain``, ``grammar``, ``pddl_problem`` (text, required) and ``solvable`` (true, false or null: not
tested).

Source: ALFWorld (arXiv 2010.03768), section 2, and its loader's rules for exclusion.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.alfworld.families import BY_NAME, Family, Goal
from rl_agents.envs.alfworld.native import GameFile
from rl_agents.errors import InputError, nearest
from rl_agents.tools.strict_json import read_json_file

FOLDER = "json_2.1.1"
#: split -> its folder
SPLITS = {"train": "train", "test_seen": "valid_seen", "test_unseen": "valid_unseen"}
GAME_FILE = "game.tw-pddl"
#: Real files have 50-150 kB.
MAX_BYTES = 20_000_000
REASONS = MOVABLE, MISSING, UNSOLVABLE = "with movable receptacles or slices", "without a game file", "unsolvable"
_TASK_ID = re.compile(r"[\w-]+(/[\w.+-]+){2}")


class UnsolvableGame(InputError):
    """A game whose file says that it cannot be won."""


def load_game(path: str | Path) -> GameFile:
    path = Path(path)
    data = _read_object(path)
    for key in ("pddl_domain", "grammar", "pddl_problem"):
        if key not in data:
            raise InputError(f"{path}: key '{key}' is missing")
        if not isinstance(data[key], str):
            raise InputError(f"{path}: key '{key}' must be text, not {type(data[key]).__name__}")
    if not isinstance(data.get("solvable"), bool | None):
        raise InputError(f"{path}: key 'solvable' must be true, false or null")
    if data.get("solvable") is False:
        raise UnsolvableGame(f"{path}: its key 'solvable' is false")
    # Thousands of games share these texts; in memory they are kept once.
    return GameFile(path, sys.intern(data["pddl_domain"]), sys.intern(data["grammar"]), data["pddl_problem"])


def _read_object(path: Path) -> dict[str, Any]:
    data = read_json_file(path, MAX_BYTES, strict=False)
    if not isinstance(data, dict):
        raise InputError(f"{path}: {type(data).__name__}, not a JSON object")
    return data


def official_file(data: str | Path, task_id: str) -> GameFile:
    """Read the game of a task id. A grammar without a task gets one from ``traj_data.json``."""
    if not _TASK_ID.fullmatch(task_id) or ".." in task_id:
        raise InputError(f"alfworld task '{task_id[:80]}': an official task is <split>/<task>/<trial>")
    game, trajectory, family = _read_trial(root_folder(data) / task_id)
    if "UNKNOWN GOAL" not in game.grammar:
        return game
    return replace(game, grammar=game.grammar.replace("UNKNOWN GOAL", _goal(game.path, trajectory, family).sentence(0)))


def root_folder(data: str | Path) -> Path:
    """Return the folder with the splits: ``data`` itself or ``json_2.1.1`` in it."""
    data = Path(data).expanduser()
    for folder in (data / FOLDER, data):
        if any((folder / name).is_dir() for name in SPLITS.values()):
            return folder
    reason = "no such folder" if not data.is_dir() else f"no {FOLDER}/{{{','.join(SPLITS.values())}}} in it"
    raise InputError(f"env.data={data}: {reason}; alfworld-download makes it")


@lru_cache(maxsize=8)
def official_games(data: str | Path, split: str) -> tuple[str, ...]:
    """Return the task ids of ``train``, ``test_seen`` or ``test_unseen``; exclusions are reported on stderr once."""
    folder = root_folder(data) / SPLITS[split]
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; alfworld-download makes it")
    games: list[str] = []
    excluded: Counter[str] = Counter()
    for trial in sorted((path for path in folder.glob("*/*") if path.is_dir()), key=lambda path: path.as_posix()):
        task_id = trial.relative_to(folder.parent).as_posix()
        if "movable" in task_id or "Sliced" in task_id:
            excluded[MOVABLE] += 1
        elif not (trial / GAME_FILE).exists():
            excluded[MISSING] += 1
        else:
            try:
                _read_trial(trial)
                games.append(task_id)
            except UnsolvableGame:
                excluded[UNSOLVABLE] += 1
            except InputError as error:
                message = f"{error}; is the download complete? Delete the folder {task_id} to exclude the game"
                raise InputError(message) from None
    usable = f"{len(games):,} of {len(games) + excluded.total():,} trials can be used"
    report = ", ".join([usable, *(f"{excluded[why]:,} {why} excluded" for why in REASONS if excluded[why])])
    if not games:
        raise InputError(f"{folder}: no game in it ({report})")
    if excluded:
        print(f"[rl_agents] alfworld {folder.name}: {report}", file=sys.stderr, flush=True)
    return tuple(games)


def _read_trial(trial: Path) -> tuple[GameFile, Mapping[str, Any], Family]:
    """Read and check a trial's game and trajectory."""
    path = trial / "traj_data.json"
    trajectory = _read_object(path)
    name = str(trajectory.get("task_type"))
    if name not in BY_NAME:
        raise InputError(f"{path}: unknown task_type '{name}': {nearest(name, BY_NAME)}")
    return load_game(trial / GAME_FILE), trajectory, BY_NAME[name]


def _goal(path: Path, trajectory: Mapping[str, Any], family: Family) -> Goal:
    parameters = trajectory.get("pddl_params")
    key = "toggle_target" if family.in_light else "parent_target"
    if not isinstance(parameters, dict) or not all(parameters.get(k) for k in ("object_target", key)):
        raise InputError(f"{path}: its grammar has no task, and traj_data.json has no pddl_params to make one of")
    return Goal(family, str(parameters["object_target"]), str(parameters[key]))
