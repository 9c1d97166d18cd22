"""The result of an agent: a reward and related values, returned or written as the last JSON line of its output."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

#: Longest line of a result, in bytes.
MAX_LINE = 1 << 20


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


KEYS = ("reward", "success", "truncated", "metrics", "references", "points", "evidence")


def read_result(data: Any) -> AgentResult:
    """Read a result: a number is a reward; an object may have the keys of `AgentResult`, and others.

    Raises:
        ValueError: the problem.
    """
    if isinstance(data, Real) or not isinstance(data, Mapping):
        return AgentResult(_number(data, "the result"))
    reward, success, evidence = data.get("reward"), data.get("success"), data.get("evidence")
    metrics = data.get("metrics") or {}
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics is {shown(metrics)}, not an object")
    return AgentResult(
        reward=None if reward is None else _number(reward, "reward"),
        success=None if success is None else _flag(success, "success"),
        truncated=_flag(data.get("truncated", False), "truncated"),
        metrics={str(name): _number(value, f"metrics.{name}") for name, value in metrics.items()},
        references=_texts(data.get("references") or [], "references"),
        points=_texts(data.get("points") or [], "points"),
        evidence=None if evidence is None else _texts(evidence, "evidence"),
    )


class ResultLine:
    """Finds the last line that is a result in output that arrives in pieces; keeps one line in memory."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._too_long = False
        self._last: Mapping[str, Any] | None = None

    def feed(self, piece: bytes) -> None:
        *whole, rest = piece.split(b"\n")
        for line in whole:
            self._add(line)
            self._end_line()
        self._add(rest)

    def last(self) -> Mapping[str, Any] | None:
        """Return the last result; None if there was none."""
        self._end_line()
        return self._last

    def _add(self, piece: bytes) -> None:
        if len(self._line) + len(piece) > MAX_LINE:
            self._too_long = True
            self._line.clear()
        if not self._too_long:
            self._line += piece

    def _end_line(self) -> None:
        line, self._line, self._too_long = bytes(self._line).strip(), bytearray(), False
        if line.startswith(b"{") and line.endswith(b"}"):
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                return
            # Other lines of JSON are logs.
            if any(name in data for name in KEYS):
                self._last = data


def shown(value: Any) -> str:
    return f"{type(value).__name__} {ascii(value)[:80]}"


def _number(value: Any, name: str) -> float:
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except (OverflowError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} is {shown(value)}, not a finite number")
    return number


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool) and type(value).__name__ not in ("bool", "bool_"):
        raise ValueError(f"{name} is {shown(value)}, not true or false")
    return bool(value)


def _texts(value: Any, name: str) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"{name} is {shown(value)}, not a list of texts")
    return [str(item) for item in value]
