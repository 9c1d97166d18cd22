"""The official ALFWorld games in a folder as ``alfworld-download`` writes it.

    <data>/json_2.1.1/{train,valid_seen,valid_unseen}/<task>/<trial>/{traj_data.json,game.tw-pddl,initial_state.pddl}

A task id is the path of the trial under ``json_2.1.1``:
``valid_seen/pick_and_place_simple-Mug-None-Desk-308/trial_T2``.
Games are listed in the order of their ids, never in that of the directory. As in ALFWorld, tasks with movable
receptacles or slices, trials without a game file (the download lacks many) and unsolvable games are excluded and
counted. A file that cannot be read is an error. Source: ALFWorld, section 2; its loader's rules for exclusion.

A game file (``game.tw-pddl``) is JSON with ``pddl_domain``, ``grammar``, ``pddl_problem`` (text, required) and
``solvable`` (true, false or null: not tested). Other keys are ignored. Source: the TextWorld engine's PDDL games as
ALFWorld (Shridhar et al., 2021) writes them.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.alfworld.families import BY_NAME, Family, Goal
from rl_agents.envs.alfworld.native import GameFile
from rl_agents.errors import InputError, nearest, unknown

FOLDER = "json_2.1.1"
#: split -> its folder
SPLITS = {"train": "train", "test_seen": "valid_seen", "test_unseen": "valid_unseen"}
GAME_FILE = "game.tw-pddl"
#: Real files have 50-150 kB.
MAX_BYTES = 20_000_000
REASONS = MOVABLE, MISSING, UNSOLVABLE = "with movable receptacles or slices", "without a game file", "unsolvable"
_TASK_ID = re.compile(r"[\w-]+(/[\w.+-]+){2}")
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}


class UnsolvableGame(InputError):
    """A game whose file says that it cannot be won."""


def load_game(path: str | Path) -> GameFile:
    """Read a game file.

    Raises:
        InputError: no such file, too large, not JSON (an incomplete download), or a key that is missing or of the
            wrong kind.
        UnsolvableGame: its file says that it cannot be won.
    """
    path = Path(path)
    data = _read_object(path, "an ALFWorld game")
    solvable = data.get("solvable")
    if not isinstance(solvable, bool | None):
        raise InputError(f"{path}: key 'solvable' must be true, false or null, not {_kind(solvable)}")
    domain, grammar, problem = (_text(path, data, key) for key in ("pddl_domain", "grammar", "pddl_problem"))
    if solvable is False:
        raise UnsolvableGame(f"{path}: its key 'solvable' is false")
    # Thousands of games share these texts; in memory they are kept once.
    return GameFile(path, sys.intern(domain), sys.intern(grammar), problem)


def _read_object(path: Path, what: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES // 1_000_000} MB, so not {what}")
        data = json.loads(raw.decode())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; is the download complete?") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise InputError(f"{path}: JSON nested too deeply") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON: {error}; is the download complete?") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: not {what}: a JSON object is expected, not {_kind(data)}")
    return data


def _text(path: Path, data: Mapping[str, Any], key: str) -> str:
    if key not in data:
        raise InputError(f"{path}: key '{key}' is missing")
    value = data[key]
    if not isinstance(value, str):
        raise InputError(f"{path}: key '{key}' must be text, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a split's folder holds.

    Attributes:
        games: task ids of the usable games, in order.
        bad: one line for each game that cannot be read.
        excluded: number of trials that ALFWorld excludes, by reason.
    """

    games: tuple[str, ...]
    bad: tuple[str, ...]
    excluded: Mapping[str, int]

    @property
    def trials(self) -> int:
        return len(self.games) + len(self.bad) + sum(self.excluded.values())

    def report(self) -> str:
        """Return one line on the findings."""
        parts = [f"{len(self.games):,} of {self.trials:,} trials can be used"]
        parts += [f"{self.excluded[why]:,} {why} excluded" for why in REASONS if self.excluded[why]]
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
    games: list[str] = []
    bad: list[str] = []
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
                bad.append(str(error))
    return Listing(tuple(games), tuple(bad), excluded)


def _read_trial(trial: Path) -> tuple[GameFile, Mapping[str, Any], Family]:
    """Read and check a trial's game and trajectory."""
    path = trial / "traj_data.json"
    trajectory = _read_object(path, "a trajectory")
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
