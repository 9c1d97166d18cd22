"""Metrics of learners as plain sums, so that they add up over micro-batches, optimizer steps and learners."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch

How = Literal["sum", "mean", "max"]


@dataclass
class LearnerMetrics:
    """name -> (how, value, weight): a weighted sum and its weight for ``mean``, a value for ``sum`` and ``max``."""

    data: dict[str, tuple[str, float, float]] = field(default_factory=dict)

    def add(self, name: str, value: float, weight: float = 1.0, how: How = "mean") -> None:
        """Add an observation."""
        self.join(name, how, value * weight if how == "mean" else value, weight)

    def join(self, name: str, how: str, total: float, weight: float) -> None:
        _, old, old_weight = self.data.get(name, (how, float("-inf") if how == "max" else 0.0, 0.0))
        self.data[name] = (how, max(old, total) if how == "max" else old + total, old_weight + weight)

    def add_tokens(self, name: str, values: torch.Tensor, mask: torch.Tensor) -> None:
        """Add a per-token quantity; its mean is over the tokens with mask 1."""
        count = float(mask.sum())
        if count:
            self.add(name, float((values.detach() * mask).sum()) / count, count)


def reduce_metrics(parts: Iterable[dict[str, tuple[str, float, float]]], steps: int) -> dict[str, float]:
    """Merge learners' metrics to numbers; a ``sum`` (a loss) is averaged over the optimizer steps."""
    merged = LearnerMetrics()
    for part in parts:
        for name, (how, value, weight) in part.items():
            merged.join(name, how, value, weight)
    return {
        name: value / weight if how == "mean" else value / steps if how == "sum" else value
        for name, (how, value, weight) in merged.data.items()
        if how != "mean" or weight
    }
