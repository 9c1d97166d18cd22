"""Algorithms by the name that the command line uses. A new one is an `AlgorithmSpec` in a module of this folder."""

import importlib
import pkgutil

from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config.settings import KEYS, Settings, declare
from rl_agents.errors import InputError
from rl_agents.plugins import claim

#: The order of listings; algorithms that are not named here follow.
ORDER = (
    "sft", "ppo", "reinforce++", "reinforce++-baseline", "rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo",
    "gigpo", "hgpo", "steppo", "3spo", "vspo", "pivotrl", "chain-gae", "distill",
)  # fmt: skip


def discover() -> dict[str, AlgorithmSpec]:
    """Import every module of this folder and return their algorithms by name, in the order of listings."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {one.name: one for module in modules for one in vars(module).values() if isinstance(one, AlgorithmSpec)}
    return {name: found[name] for name in sorted(found, key=lambda name: [*ORDER, name].index(name))}


ALGORITHMS: dict[str, AlgorithmSpec] = discover()
for _recipe in ALGORITHMS.values():
    declare(_recipe.keys)


def readers(name: str) -> list[str]:
    """Return the algorithms that read a key; empty for a key that does not depend on the algorithm."""
    return [recipe.name for recipe in ALGORITHMS.values() if name in recipe.reads]


def register(recipe: AlgorithmSpec) -> AlgorithmSpec:
    """Add an algorithm of a plugin, with its keys, and return it.

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
