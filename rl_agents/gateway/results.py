"""The result of an agent: a reward and related values, returned or written as the last JSON line of its output."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from rl_agents.errors import finite_metrics, only_item


@dataclass(frozen=True, slots=True)
class AgentResult:
    """An agent's report of its episode. Missing values are None or empty.

    Attributes:
        reward: of the whole episode, in addition to rewards of single calls.
        success: whether the task was solved; None: if the return is above 0.
        truncated: the task's environment truncated the episode.
        metrics: numbers for reports.
        references: accepted answers; ``points`` and ``evidence``: for judges of long answers (reward=prs).
    """

    reward: float | None = None
    success: bool | None = None
    truncated: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    points: list[str] = field(default_factory=list)
    evidence: list[str] | None = None


NUMBER = re.compile(rb"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
NO_REWARD = 'no reward: end with a number, or with a line such as {"reward": 1.0}, or send it to /rl/reward'
KEYS = ("reward", "success", "truncated", "metrics", "references", "points", "evidence")


def read_result(data: Any) -> AgentResult:
    """Read a result: a number is a reward; an object may have the keys of `AgentResult`, and others.

    Raises:
        ValueError: the problem.
    """
    data = only_item(data)
    if not isinstance(data, Mapping):
        return AgentResult(_number(data, "the result"))
    reward, success, evidence = data.get("reward"), data.get("success"), data.get("evidence")
    metrics = data.get("metrics") or {}
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics is {shown(metrics)}, not an object")
    return AgentResult(
        reward=None if reward is None else _number(reward, "reward"),
        success=None if success is None else _flag(success, "success"),
        truncated=_flag(data.get("truncated", False), "truncated"),
        metrics=finite_metrics(metrics, "the agent's result"),
        references=_texts(data.get("references") or [], "references"),
        points=_texts(data.get("points") or [], "points"),
        evidence=None if evidence is None else _texts(evidence, "evidence"),
    )


def last_result(output: bytes, number: bool = False) -> Any:
    """Return the last line of an agent's output that is a result, or its end if that is a ``number``; else None."""
    lines = [line for line in map(bytes.strip, reversed(output.split(b"\n"))) if line]
    if number and lines and NUMBER.fullmatch(lines[0]):
        return float(lines[0])
    for line in lines:
        if line.startswith(b"{") and line.endswith(b"}"):
            with suppress(ValueError, RecursionError):
                data: dict[str, Any] = json.loads(line)
                if any(name in data for name in KEYS):  # other lines of JSON are logs
                    return data
    return None


def shown(value: Any) -> str:
    return f"{type(value).__name__} {ascii(value)[:80]}"


def _number(value: Any, name: str) -> float:
    try:
        item = only_item(value)
        number = float(item) if isinstance(item, Real) else math.nan
    except (OverflowError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} is {shown(value)}, not a finite number")
    return number


def _flag(value: Any, name: str) -> bool:
    item = only_item(value)
    if not isinstance(item, bool):
        raise ValueError(f"{name} is {shown(value)}, not true or false")
    return item


def _texts(value: Any, name: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} is {shown(value)}, not a list of texts")
    return [str(item) for item in value]
