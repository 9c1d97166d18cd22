"""Algorithms by the name that the command line uses. A new one is one file in this folder, with an ``ALGORITHM``."""

import importlib
import pkgutil

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config.settings import KEYS, Settings, declare
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
for _recipe in ALGORITHMS.values():
    declare(_recipe.keys)


def readers(name: str) -> list[str]:
    """Return the algorithms that read a key; empty for a key that does not depend on the algorithm."""
    return [recipe.name for recipe in ALGORITHMS.values() if name in recipe.reads]


def register(recipe: AlgorithmSpec) -> AlgorithmSpec:
    """Add an algorithm of a plugin, with its keys; returns it.

    Raises:
        InputError: its name is taken, or a key of it has another type or default in another algorithm.
    """
    claim("algorithm", recipe.name, ALGORITHMS)
    try:
        declare(recipe.keys)
    except ValueError as error:
        raise InputError(f"algorithm {recipe.name}: {error}") from error
    ALGORITHMS[recipe.name] = recipe
    return recipe


__all__ = ["ALGORITHMS", "KEYS", "Settings", "readers", "register"]
