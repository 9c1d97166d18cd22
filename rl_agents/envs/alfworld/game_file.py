"""ALFWorld game files (``game.tw-pddl``): JSON with a PDDL domain, a text grammar and a PDDL problem.

Keys: ``pddl_domain``, ``grammar``, ``pddl_problem`` (text, required), ``walkthrough`` (list of commands or null) and
``solvable`` (true, false or null: nobody tried). Other keys are ignored. Source: the TextWorld engine's PDDL games as
ALFWorld (Shridhar et al., 2021) lays them out.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_agents.errors import InputError

#: Real games are 50-150 kB; anything far beyond that is not a game.
MAX_BYTES = 20_000_000


@dataclass(frozen=True)
class GameFile:
    """The texts of one game.

    Attributes:
        domain, grammar, problem: PDDL domain, text grammar and PDDL problem, unparsed.
        walkthrough: commands that win, where the file has them.
        solvable: whether a planner or an expert won the game; None where the file does not say.
    """

    path: Path
    domain: str
    grammar: str
    problem: str
    walkthrough: tuple[str, ...] | None
    solvable: bool | None


def load_game(path: str | Path) -> GameFile:
    """Read a game file.

    Raises:
        InputError: no such file, too large, not JSON (half-downloaded), a key is missing or of the wrong kind.
    """
    path = Path(path)
    data = _read_json(path)
    if not isinstance(data, dict):
        raise InputError(f"{path}: not an ALFWorld game: a JSON object is expected, not {_kind(data)}")
    return GameFile(
        path=path,
        # Thousands of games share these texts; in memory they are kept once.
        domain=sys.intern(_text(path, data, "pddl_domain")),
        grammar=sys.intern(_text(path, data, "grammar")),
        problem=_text(path, data, "pddl_problem"),
        walkthrough=_walkthrough(path, data.get("walkthrough")),
        solvable=_solvable(path, data.get("solvable")),
    )


def _read_json(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise InputError(f"{path}: no such game file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise InputError(f"{path}: larger than {MAX_BYTES // 1_000_000} MB, so not an ALFWorld game")
    try:
        return json.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise InputError(f"{path}: not valid JSON at {where}: {error.msg}; is the download complete?") from None
    except RecursionError:
        raise InputError(f"{path}: JSON nested too deeply") from None


def _text(path: Path, data: dict[str, Any], key: str) -> str:
    if key not in data:
        raise InputError(f"{path}: key '{key}' is missing")
    value = data[key]
    if not isinstance(value, str):
        raise InputError(f"{path}: key '{key}' must be text, not {_kind(value)}")
    return value


def _walkthrough(path: Path, value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(command, str) for command in value):
        raise InputError(f"{path}: key 'walkthrough' must be a list of commands or null")
    return tuple(value)


def _solvable(path: Path, value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise InputError(f"{path}: key 'solvable' must be true, false or null, not {_kind(value)}")


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")
