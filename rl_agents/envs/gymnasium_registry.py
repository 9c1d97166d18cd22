"""Where ``gymnasium:<id>`` comes from: gymnasium's registry, and modules of the user's own.

``gymnasium:<module>:<id>`` imports the module first, from wherever Python finds modules or from the current folder, and
takes what it registers under the id, or its class of that name.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import site
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from rl_agents.errors import InputError

#: Files of the user's own modules, by name: what the workers of a cluster have to be given.
OWN_MODULES: dict[str, Path] = {}


def registered(gym_id: str) -> EnvSpec:
    """Return gymnasium's entry of ``<id>`` or ``<module>:<id>``; its entry point is loaded.

    Raises:
        InputError: no environment under the id (the nearest is named), or its module or class cannot be imported.
    """
    module, colon, plain_id = gym_id.rpartition(":")
    home = own_module(module, f"gymnasium environment {gym_id}") if colon else None
    if plain_id in gymnasium.registry:
        entry = gymnasium.registry[plain_id]
    elif inspect.isclass(found := getattr(home, plain_id, None)) and issubclass(found, gymnasium.Env):
        entry = EnvSpec(id=plain_id, entry_point=cast(Any, found))
    else:
        raise _unknown(gym_id, module, home)
    if not isinstance(entry.entry_point, str):
        return entry
    try:
        return replace(entry, entry_point=cast(Any, load_env_creator(entry.entry_point)))
    except (ImportError, AttributeError, ValueError) as error:
        raise InputError(
            f"gymnasium environment {gym_id}: its entry point {entry.entry_point} cannot be loaded: {error}"
        ) from error


def own_module(module: str, wanted: str) -> Any:
    """Import a module from wherever Python finds modules or from the current folder, and note it in `OWN_MODULES`.

    Args:
        wanted: what it is imported for, as messages begin.

    Raises:
        InputError: there is none, or it cannot be imported; the line is named.
    """
    folder = os.getcwd()
    if folder not in sys.path and "" not in sys.path:
        sys.path.append(folder)  # at the end: a file here must not take the place of an installed module
    importlib.invalidate_caches()
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise InputError(f"{wanted}: {_place(error, module)} needs {error.name}, which is "
                             "not installed") from error  # fmt: skip
        raise InputError(
            f"{wanted}: there is no module {module} in {folder} or among the installed ones; "
            f"start from the folder that holds {module.partition('.')[0]}.py, or add that folder to PYTHONPATH"
        ) from error
    except Exception as error:
        raise InputError(
            f"{wanted}: {_place(error, module)} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    _remember(module.partition(".")[0])
    return home


def _place(error: BaseException, module: str) -> str:
    """Return the module, with the line of its own or of what it imports that failed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    own = [frame for frame in frames if frame.filename != __file__]
    return f"module {module} ({own[-1].filename}, line {own[-1].lineno})" if own else f"module {module}"


def _remember(name: str) -> None:
    """Note a top-level module that no package manager has put on every machine."""
    module = sys.modules[name]
    path = Path([*getattr(module, "__path__", ()), module.__file__ or ""][0]).resolve()
    installed = [*site.getsitepackages(), site.getusersitepackages(), os.path.dirname(os.__file__)]
    if name != "rl_agents" and not any(path.is_relative_to(Path(folder).resolve()) for folder in installed):
        OWN_MODULES[name] = path


def _unknown(gym_id: str, module: str, home: Any) -> InputError:
    plain_id = gym_id.rpartition(":")[2]
    if home is None:
        nearest = difflib.get_close_matches(plain_id, gymnasium.registry, n=1, cutoff=0.0)
        return InputError(
            f"unknown gymnasium environment '{plain_id}': did you mean '{nearest[0]}'? "
            "One of your own is gymnasium:<module>:<id>"
        )
    classes = [
        name
        for name, value in vars(home).items()
        if inspect.isclass(value) and issubclass(value, gymnasium.Env) and value.__module__ == home.__name__
    ]
    ids = [name for name, entry in gymnasium.registry.items() if str(entry.entry_point).startswith(f"{module}:")]
    known = ", ".join([*ids, *classes])
    return InputError(
        f"module {module} ({home.__file__}) registers no environment '{plain_id}' and has no class of that name; "
        + (f"it has: {known}" if known else "it has no gymnasium.Env")
    )
