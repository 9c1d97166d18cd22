"""Where ``gymnasium:<id>`` comes from: gymnasium's registry, and modules of the user's own.

``gymnasium:<module>:<id>`` imports the module first, from wherever Python finds modules or from the current folder, and
takes what it registers under the id, or its class of that name.
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import replace
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from rl_agents.errors import InputError
from rl_agents.plugins import own_module


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
