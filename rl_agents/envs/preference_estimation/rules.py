"""The rules of PreferenceEstimation: what a question tells, what counts as progress, which answer is right.

The user's weights w are hidden; satisfaction with a movie is Σ_i w_i·s_i (`rl_agents.envs.preferences`). Every turn the
agent names its estimate v_t of the weights and asks which of two reference movies is preferred.

Source: T3, section 3.1 (progress, binary similarity) and appendix C.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rl_agents.envs.preferences import EQUAL, YES, Movie

Comparison = tuple[int, int, int]
"""Positions i < j of two movies, and what is known: 1 (i is preferred), -1 (j is) or 0 (both satisfy the same)."""


def comparison(first: int, second: int, reply: str) -> Comparison:
    """Return what the ``reply`` to "first over second?" says, the same whichever way round it was asked.

    >>> comparison(3, 1, "Yes") == comparison(1, 3, "No") == (1, 3, -1)
    True
    """
    sign = 0 if reply == EQUAL else 1 if reply == YES else -1
    return (first, second, sign) if first < second else (second, first, -sign)


def agrees(weights: Sequence[float], movies: Sequence[Movie], known: Iterable[Comparison]) -> bool:
    """Say whether a user with these weights would have answered every question as it was answered."""
    for i, j, sign in known:
        gap = sum(w * (a - b) for w, a, b in zip(weights, movies[i].scores, movies[j].scores, strict=True))
        if (gap > 0) - (gap < 0) != sign:
            return False
    return True


def progresses(before: float | None, after: float) -> bool:
    """T3's rule for PreferenceEstimation: Sim(v_t, w) - Sim(v_t-1, w) > 0.

    A first estimate has nothing to compare with and counts as progress; an unchanged one is a stall.
    """
    return before is None or after > before


def is_right(similarity: float, threshold: float) -> bool:
    """Binary similarity: the cosine lies above the threshold."""
    return similarity > threshold
