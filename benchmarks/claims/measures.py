"""What is read from a run, and compared between two runs of one seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from benchmarks.grid import Run

#: Success in training at which two ways of collecting are compared by what they cost.
TARGET = 0.8


@dataclass(frozen=True)
class Measure:
    """A figure of a run.

    Attributes:
        name: as tables show it.
        of: reads it.
        relative: two runs are compared by ``ours / other - 1``, not by ``ours - other``.
    """

    name: str
    of: Callable[[Run], float]
    relative: bool = False

    def difference(self, ours: Run, other: Run) -> float:
        """Ours against the other one's; NaN where one of them has no such figure."""
        first, second = self.of(ours), self.of(other)
        return first / second - 1 if self.relative else first - second


def last(series: dict[str, float]) -> float:
    """The value at the last iteration."""
    return series[max(series, key=int)]


def at_steps(steps: int) -> Measure:
    """Success after so many environment steps, interpolated between evaluations."""

    def read(run: Run) -> float:
        until = np.concatenate([[0], np.cumsum(run["steps"])])
        iterations = sorted(map(int, run["success"]))
        return float(np.interp(steps, until[iterations], [run["success"][str(i)] for i in iterations]))

    return Measure(f"success after {steps // 1000} k environment steps", read)


def at_tokens(tokens: int) -> Measure:
    """Success after so many sampled tokens, interpolated between evaluations."""

    def read(run: Run) -> float:
        iterations = sorted(map(int, run["success"]))
        sampled, success = ([run[key][str(i)] for i in iterations] for key in ("tokens", "success"))
        return float(np.interp(tokens, sampled, success))

    return Measure(f"success after {tokens // 1000} k sampled tokens", read)


def turns_to_target(run: Run) -> float:
    """Environment turns until the evaluated success reaches `TARGET`; NaN: never."""
    reached = [int(i) for i, rate in run["success"].items() if rate >= TARGET]
    return float(run["rollout_turns"][str(min(reached))]) if reached else math.nan


SUCCESS = Measure("success on the test tasks", lambda run: last(run["success"]))
ON_THE_WAY = Measure("mean success of all evaluations", lambda run: fmean(run["success"].values()))
TOKENS = Measure("sampled tokens, relative", lambda run: float(run["sampled_tokens"]), relative=True)
SILENT = Measure("share of tasks without an advantage", lambda run: fmean(run["zero_advantage"]))
CPU_PER_TOKEN = Measure(
    "CPU-seconds per sampled token, relative", lambda run: run["cpu_seconds"] / run["sampled_tokens"], relative=True
)
KEPT_FOUR = Measure("mean success on four other domains", lambda run: last(run["retained"]))
TURNS = Measure(f"turns until success {TARGET}, relative", turns_to_target, relative=True)
