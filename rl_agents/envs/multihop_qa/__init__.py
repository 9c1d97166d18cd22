"""Multi-hop question answering with a search tool (StepPO, appendix B; PRS and VSPO, short-form QA)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.multihop_qa.env import MultihopQAEnv, make
from rl_agents.envs.multihop_qa.tasks import task_ids

__all__ = ["STARTER", "MultihopQAEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing needs neither.
    if name == "STARTER":
        from rl_agents.envs.multihop_qa.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
