"""PaperSearch: collect the papers that meet a request (StepPO, appendix B)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.paper_search.env import PaperSearchEnv, make
from rl_agents.envs.paper_search.tasks import task_ids

__all__ = ["STARTER", "PaperSearchEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; searching needs neither.
    if name == "STARTER":
        from rl_agents.envs.paper_search.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
