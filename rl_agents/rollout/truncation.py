"""T3: when to stop an episode whose belief no longer moves (Definition 2 of the paper), as pure rules.

What happens then (ask for the answer now, or end with reward 0) is the agent loop's business; truncation is for
training only, never for evaluation.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

StallMode = Literal["consecutive", "cumulative"]


@dataclass(slots=True)
class StallWindow:
    """Fires at the k-th step without progress; one object per episode.

    Attributes:
        k: number of stalls that fires, >= 1.
        mode: ``consecutive``: progress resets the count (paper);  ``cumulative``: it does not (released code for
            CircuitDecoding).
        minimum_turns: never fire before this many steps (τ² uses 6).
        stalls: stalls counted so far.
        turns: steps seen so far.

    >>> window = StallWindow(k=2)
    >>> [window.update(progress) for progress in (False, True, False, False)]
    [False, False, False, True]
    """

    k: int
    mode: StallMode = "consecutive"
    minimum_turns: int = 0
    stalls: int = 0
    turns: int = 0

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")
        if self.mode not in ("consecutive", "cumulative"):
            raise ValueError(f"unknown stall mode '{self.mode}': valid: consecutive, cumulative")

    def skip(self) -> None:
        """Record a step that says nothing about belief, such as one that could not be parsed."""
        self.turns += 1

    def update(self, progress: bool) -> bool:
        """Record one step and return whether the episode is to be truncated after it."""
        self.turns += 1
        if not progress:
            self.stalls += 1
        elif self.mode == "consecutive":
            self.stalls = 0
        return self.stalls >= self.k and self.turns >= self.minimum_turns


def similarity_trigger(cosine: float, threshold: float) -> bool:
    """Fire when the new question resembles an earlier one: cosine > α, α in {0.9, 0.93, 0.96}."""
    return cosine > threshold


def random_trigger(stream: random.Random, beta: float) -> bool:
    """Fire with probability β at every step: the control that shows whether the rule or the cut itself helps."""
    if not 0.0 <= beta <= 1.0:
        raise ValueError(f"beta must be in [0, 1], got {beta}")
    return stream.random() < beta
