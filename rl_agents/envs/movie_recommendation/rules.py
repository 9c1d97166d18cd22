"""The rules of MovieRecommendation: what is asked about, what counts as progress, which recommendation is right.

The user's weights are hidden. The agent compares seen movies two by two and names its estimate of the weights with
every question; then it must recommend the one unseen movie that satisfies the user most.

Sources: T3 (arXiv 2510.12264), section 3.1 (progress), appendices C.1 and C.3 (exact match); the released code for the
movement of the estimate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rl_agents.envs.preferences import EQUAL, YES, Levels, Movie, Vector, cosine, satisfaction


@dataclass(frozen=True, slots=True, order=True)
class Comparison:
    """An answered question: the user prefers ``better`` to ``worse``, or likes both the same (``equal``)."""

    better: str
    worse: str
    equal: bool


def comparison(first: Movie, second: Movie, reply: str) -> Comparison:
    """Return what the ``reply`` to "first over second?" says; the same whichever way round it was asked."""
    if reply == EQUAL:
        low, high = sorted((first.name, second.name))
        return Comparison(low, high, equal=True)
    better, worse = (first, second) if reply == YES else (second, first)
    return Comparison(better.name, worse.name, equal=False)


def consistent(weights: Levels, comparisons: Iterable[Comparison], movies: Sequence[Movie]) -> bool:
    """Say whether a user with these weights would have answered every question as it was answered."""
    named = {movie.name: movie for movie in movies}
    for known in comparisons:
        gap = satisfaction(weights, named[known.better]) - satisfaction(weights, named[known.worse])
        if not (gap == 0 if known.equal else gap > 0):
            return False
    return True


def similarity_progresses(estimates: Sequence[Vector], weights: Levels) -> bool:
    """T3's rule: the last estimate is more similar (cosine) to the hidden weights than the one before; a first one is.

    An unchanged estimate is a stall: Sim(v_τ+1, v*) - Sim(v_τ, v*) is then below any Δ_min > 0.
    """
    similarities = [cosine(estimate, weights) for estimate in estimates[-2:]]
    return len(similarities) < 2 or similarities[-1] - similarities[-2] > 0


def movement_progresses(estimates: Sequence[Vector], window: int, threshold: float) -> bool:
    """The released code's rule, which needs no oracle: the last ``window`` movements ‖v_t - v_{t-1}‖ average at least
    ``threshold``. Fewer movements than that are progress."""
    movements = [math.dist(old, new) for old, new in itertools.pairwise(estimates)]
    return len(movements) < window or sum(movements[-window:]) / window >= threshold
