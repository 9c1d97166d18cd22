"""The built-in environments; importing this package registers them. A new one is a folder here with a ``spec.py``."""

from __future__ import annotations

import importlib
import pkgutil
from importlib.util import find_spec

from rl_agents.envs.base import register

#: The order of listings; environments that are not named here follow.
ORDER = (
    "guess_numbers", "circuit_decoding", "situation_puzzles", "preference_estimation", "movie_recommendation",
    "alfworld", "webshop", "multihop_qa", "paper_search", "long_form_qa", "mcp", "pivot",
)  # fmt: skip


def discover() -> None:
    """Register the ``SPEC`` of every folder's ``spec`` module, in the order of listings."""
    folders = [f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__) if module.ispkg]
    names = [name for name in folders if find_spec(f"{name}.spec")]
    for name in sorted(names, key=lambda n: ORDER.index(n.split(".")[-1]) if n.split(".")[-1] in ORDER else len(ORDER)):
        register(importlib.import_module(f"{name}.spec").SPEC)


discover()
