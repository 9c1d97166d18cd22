"""Judges behind a server, for the environments that have `rl_agents.envs.options.JudgeKeys`."""

from __future__ import annotations

from typing import TypeVar

from rl_agents.envs.options import JudgeKeys
from rl_agents.errors import InputError
from rl_agents.rewards.judge import OpenAIJudge

Served = TypeVar("Served", bound=OpenAIJudge)


def connect_judge(kind: type[Served], keys: JudgeKeys) -> Served:
    """Build the judge that the options ``env.judge_*`` describe.

    Raises:
        InputError: no URL or no model; see `ModelServer.connect`.
    """
    for name in ("judge_url", "judge_model"):
        if not getattr(keys, name):
            raise InputError(f"env.judge=openai needs env.{name}")
    return kind.from_keys(keys)
