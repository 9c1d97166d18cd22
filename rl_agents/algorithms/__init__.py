"""Algorithms by the name that the command line uses. A new one is one file in this folder, with an ``ALGORITHM``."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.keys import compose, extend
from rl_agents.errors import InputError
from rl_agents.plugins import claim

#: The order of listings; modules that are not named here follow.
ORDER = (
    "sft", "ppo", "reinforce_pp", "reinforce_pp_baseline", "rloo", "grpo", "dr_grpo", "dapo", "gspo", "cispo",
    "gigpo", "hgpo", "steppo", "three_spo", "vspo", "pivotrl", "chain_gae",
)  # fmt: skip


def discover() -> dict[str, AlgorithmSpec]:
    """Import every module of this folder and return the recipes by name, in the order of listings."""
    found = [module.name for module in pkgutil.iter_modules(__path__)]
    ordered = sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in ordered]
    recipes = [module.ALGORITHM for module in modules if hasattr(module, "ALGORITHM")]
    return {recipe.name: recipe for recipe in recipes}


ALGORITHMS: dict[str, AlgorithmSpec] = discover()

if TYPE_CHECKING:
    # A checker knows the framework's keys; functions that read an algorithm's name the class that declares them.
    from rl_agents.config import Settings
else:
    #: The settings of a run: every key of the framework and of all algorithms.
    Settings = compose(ALGORITHMS.values(), __name__)


def register(recipe: AlgorithmSpec) -> AlgorithmSpec:
    """Add an algorithm of a plugin, with its keys; returns it.

    Raises:
        InputError: its name is taken, or a key of it means something else to another algorithm.
    """
    claim("algorithm", recipe.name, ALGORITHMS)
    try:
        extend(Settings, [*ALGORITHMS.values(), recipe])
    except TypeError as error:
        raise InputError(f"algorithm {error}") from error
    ALGORITHMS[recipe.name] = recipe
    return recipe


__all__ = ["ALGORITHMS", "Settings", "register"]
