"""WebShop: find and buy the product that an instruction describes (arXiv 2207.01206)."""

from __future__ import annotations

from typing import Any

__all__ = ["STARTER", "WebShopEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The registry imports this package for its spec alone; rapidfuzz, and torch for the starter, load when needed.
    if name == "STARTER":
        from rl_agents.envs.webshop.starter import STARTER

        return STARTER
    if name in __all__:
        from rl_agents.envs.webshop import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
