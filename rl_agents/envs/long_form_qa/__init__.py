"""Long-form question answering: questions over a document set, answers of several sentences (PRS, long form)."""

from __future__ import annotations

from typing import Any

from rl_agents.envs.long_form_qa.env import LongFormQAEnv, make
from rl_agents.envs.long_form_qa.tasks import task_ids

__all__ = ["STARTER", "LongFormQAEnv", "make", "task_ids"]


def __getattr__(name: str) -> Any:
    # The starter needs torch and transformers; playing needs neither.
    if name == "STARTER":
        from rl_agents.envs.long_form_qa.starter import STARTER

        return STARTER
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
