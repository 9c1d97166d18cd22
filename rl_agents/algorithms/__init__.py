"""Algorithms by the name that the command line uses. A new one is a module with a ``RECIPE`` and a line here."""

from rl_agents.algorithms import grpo, ppo, sft
from rl_agents.algorithms.base import Recipe

ALGORITHMS: dict[str, Recipe] = {module.RECIPE.name: module.RECIPE for module in (sft, ppo, grpo)}

__all__ = ["ALGORITHMS", "Recipe"]
