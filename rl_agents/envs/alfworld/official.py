"""The official ALFWorld games in a folder as ``alfworld-download`` lays it out.

    <data>/json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/{traj_data.json,game.tw-pddl,initial_state.pddl}

A task id is the path of the trial under ``json_2.1.1``:
``valid_seen/pick_and_place_simple-Mug-None-Desk-308/trial_T2``.
Games are listed in the order of their ids, never in that of the directory. As in ALFWorld, tasks with movable
receptacles or slices, trials without a game file (the download lacks many) and unsolvable games are left out and
counted; what cannot be read is an error. Source: ALFWorld, section 2; its loader's rules for what is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.alfworld.families import BY_NAME, Family, Goal
from rl_agents.envs.alfworld.game_file import GameFile, load_game
from rl_agents.errors import InputError, nearest, unknown

FOLDER = "json_2.1.1"
#: split -> its folder
SPLITS = {"train": "train", "test_seen": "valid_seen", "test_unseen": "valid_unseen"}
GAME_FILE = "game.tw-pddl"
MAX_TRAJECTORY_BYTES = 20_000_000
_TASK_ID = re.compile(r"[\w-]+(/[\w.+-]+){2}")


class UnsolvableGame(InputError):
    """A game whose file says that it cannot be won."""


@dataclass(frozen=True, slots=True)
class OfficialGame:
    """A usable game: its task id, family and ``game.tw-pddl``."""

    task_id: str
    family: Family
    path: Path


@dataclass(frozen=True, slots=True)
class Listing:
    """What a split's folder holds.

    Attributes:
        games: the usable ones, by task id.
        bad: one line for each game that cannot be read.
        movable, missing, unsolvable: number of trials that ALFWorld leaves out: with movable receptacles or slices,
            without a game file, and of games that cannot be won.
    """

    games: tuple[OfficialGame, ...]
    bad: tuple[str, ...]
    movable: int
    missing: int
    unsolvable: int

    @property
    def trials(self) -> int:
        return len(self.games) + len(self.bad) + self.movable + self.missing + self.unsolvable

    def report(self) -> str:
        """Return one line on what was found."""
        left_out = {
            "with movable receptacles or slices": self.movable,
            "without a game file": self.missing,
            "unsolvable": self.unsolvable,
        }
        parts = [f"{len(self.games):,} of {self.trials:,} trials can be played"]
        parts += [f"{count:,} {what} left out" for what, count in left_out.items() if count]
        if self.bad:
            parts.append(f"{len(self.bad):,} bad ones skipped (the first: {self.bad[0]})")
        return ", ".join(parts)


def official_games(data: str | Path, split: str, skip_bad: bool = False) -> Listing:
    """List the games of ``train``, ``test_seen`` or ``test_unseen``.

    Raises:
        InputError: no such folder or split, no game in it, or (without ``skip_bad``) games that cannot be used.
    """
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    listing = _listing(root_folder(data) / SPLITS[split])
    if listing.bad and not skip_bad:
        more = f" (and {len(listing.bad) - 1} more)" if len(listing.bad) > 1 else ""
        rest = f"env.skip_bad_games=true uses the other {len(listing.games)}"
        raise InputError(f"{listing.bad[0]}{more}; {rest}")
    if not listing.games:
        raise InputError(f"{root_folder(data) / SPLITS[split]}: no game in it ({listing.report()})")
    return listing


def official_file(data: str | Path, task_id: str) -> GameFile:
    """Read the game of a task id. A grammar without a task gets one from ``traj_data.json``.

    Raises:
        InputError: no such game, or it cannot be used.
    """
    if not _TASK_ID.fullmatch(task_id) or ".." in task_id:
        raise InputError(f"alfworld task '{task_id[:80]}': an official task is <split>/<task>/<trial>")
    game, trajectory, family = _read_trial(root_folder(data) / task_id)
    if "UNKNOWN GOAL" not in game.grammar:
        return game
    return replace(game, grammar=game.grammar.replace("UNKNOWN GOAL", _goal(game.path, trajectory, family).sentence(0)))


def root_folder(data: str | Path) -> Path:
    """Return the folder with the splits: ``data`` itself or ``json_2.1.1`` in it.

    Raises:
        InputError: neither has a folder ``train``, ``valid_seen`` or ``valid_unseen``.
    """
    data = Path(data).expanduser()
    for folder in (data / FOLDER, data):
        if any((folder / name).is_dir() for name in SPLITS.values()):
            return folder
    reason = "no such folder" if not data.is_dir() else f"no {FOLDER}/{{{','.join(SPLITS.values())}}} in it"
    raise InputError(f"env.data={data}: {reason}; alfworld-download makes it")


@lru_cache(maxsize=8)
def _listing(folder: Path) -> Listing:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; alfworld-download makes it")
    games: list[OfficialGame] = []
    bad: list[str] = []
    movable = missing = unsolvable = 0
    for trial in _trials(folder):
        task_id = trial.relative_to(folder.parent).as_posix()
        if "movable" in task_id or "Sliced" in task_id:
            movable += 1
            continue
        if not (trial / GAME_FILE).exists():
            missing += 1
            continue
        try:
            game, _, family = _read_trial(trial)
            games.append(OfficialGame(task_id, family, game.path))
        except UnsolvableGame:
            unsolvable += 1
        except InputError as error:
            bad.append(str(error))
    return Listing(tuple(games), tuple(bad), movable, missing, unsolvable)


def _trials(folder: Path) -> Iterator[Path]:
    """Yield the ``<task>/<trial>`` folders by path."""
    yield from sorted((path for path in folder.glob("*/*") if path.is_dir()), key=lambda path: path.as_posix())


def _read_trial(trial: Path) -> tuple[GameFile, Mapping[str, Any], Family]:
    """Read and check a trial's game and trajectory."""
    trajectory = _read_trajectory(trial / "traj_data.json")
    name = trajectory.get("task_type")
    if not isinstance(name, str) or name not in BY_NAME:
        raise InputError(f"{trial / 'traj_data.json'}: unknown task_type '{name}': {nearest(str(name), BY_NAME)}")
    game = load_game(trial / GAME_FILE)
    if game.solvable is False:
        raise UnsolvableGame(f"{game.path}: unsolvable, says its key 'solvable'")
    return game, trajectory, BY_NAME[name]


def _read_trajectory(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_TRAJECTORY_BYTES + 1)
        if len(raw) > MAX_TRAJECTORY_BYTES:
            raise InputError(f"{path}: larger than {MAX_TRAJECTORY_BYTES // 1_000_000} MB, so not a trajectory")
        trajectory = json.loads(raw.decode())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; is the download complete?") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); is the download complete?") from None
    if not isinstance(trajectory, dict):
        raise InputError(f"{path}: a JSON object is expected")
    return trajectory


def _goal(path: Path, trajectory: Mapping[str, Any], family: Family) -> Goal:
    parameters = trajectory.get("pddl_params")
    key = "toggle_target" if family.in_light else "parent_target"
    if not isinstance(parameters, dict) or not all(parameters.get(k) for k in ("object_target", key)):
        raise InputError(f"{path}: its grammar has no task, and traj_data.json no pddl_params to make one of")
    return Goal(family, str(parameters["object_target"]), str(parameters[key]))
