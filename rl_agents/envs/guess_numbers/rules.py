"""The rules of GuessNumbers, as pure functions over strings of digits.

The secret is an ``a``-digit code of distinct digits from 1 to ``b``. A guess is answered with ``xAyB``: ``x`` digits
are right and in the right position, ``y`` digits are in the secret at another position.

Source: T3 (truncation of belief-trapped trajectories), appendix C.1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

Feedback = tuple[int, int]
"""``(x, y)`` of ``xAyB``."""


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Tasks with the same dynamics: code length, number of symbols, and the first guess's feedback ``x0 A y0 B``."""

    a: int
    b: int
    x0: int
    y0: int

    @property
    def name(self) -> str:
        """As in task ids, for example ``3-4-0-3``."""
        return f"{self.a}-{self.b}-{self.x0}-{self.y0}"


SUBGROUPS: tuple[SubGroup, ...] = (
    SubGroup(3, 4, 0, 3),
    SubGroup(3, 4, 2, 0),
    SubGroup(3, 4, 1, 2),
    SubGroup(3, 5, 1, 2),
    SubGroup(3, 5, 0, 3),
    SubGroup(3, 5, 1, 0),
    SubGroup(3, 5, 2, 0),
    SubGroup(4, 4, 0, 4),
    SubGroup(4, 5, 3, 0),
)
"""The nine sub-groups of T3, appendix C.1, in the paper's order."""


@cache
def codes(a: int, b: int) -> tuple[str, ...]:
    """Return all ``b! / (b - a)!`` codes of ``a`` distinct digits from 1 to ``b``, ascending.

    >>> codes(2, 3)
    ('12', '13', '21', '23', '31', '32')
    """
    digits = "123456789"[:b]
    return tuple("".join(code) for code in itertools.permutations(digits, a))


def code_error(text: str, a: int, b: int) -> str:
    """Say what is wrong with ``text`` as a code of ``a`` distinct digits from 1 to ``b``; empty when nothing is."""
    if len(text) != a or not (text.isascii() and text.isdigit()):
        return f"{text[:20]!a} is not a {a}-digit number"
    if any(not 1 <= int(digit) <= b for digit in text):
        return f"'{text}' has digits outside 1 to {b}"
    if len(set(text)) != a:
        return f"'{text}' repeats a digit"
    return ""


@cache
def feedback(secret: str, guess: str) -> Feedback:
    """Return ``(x, y)``: digits of ``guess`` in the right position, and digits present but elsewhere.

    >>> feedback("231", "123")
    (0, 3)
    """
    if len(secret) != len(guess):
        raise ValueError(f"secret has {len(secret)} digits, guess {len(guess)}")
    exact = sum(s == g for s, g in zip(secret, guess, strict=True))
    return exact, sum(digit in secret for digit in guess) - exact


def feedback_word(value: Feedback) -> str:
    """Return the one-word form.

    >>> feedback_word((0, 3))
    '0A3B'
    """
    return f"{value[0]}A{value[1]}B"


def consistent(candidates: Iterable[str], guess: str, value: Feedback) -> tuple[str, ...]:
    """Keep the candidates that would have answered ``guess`` with ``value``."""
    return tuple(code for code in candidates if feedback(code, guess) == value)


def hypotheses(a: int, b: int, history: Sequence[tuple[str, Feedback]]) -> tuple[str, ...]:
    """Return the oracle's hypothesis set: every code that agrees with all feedback so far, ascending.

    >>> hypotheses(3, 4, [("123", (0, 3))])
    ('231', '312')
    """
    remaining = codes(a, b)
    for guess, value in history:
        remaining = consistent(remaining, guess, value)
    return remaining


def guess_progresses(guess: str, before: Sequence[str]) -> bool:
    """T3's rule for GuessNumbers: a guess progresses when it lies in the hypothesis set ``before`` it was made."""
    return guess in before


def set_progresses(guess: str, before: Sequence[str], after: Sequence[str]) -> bool:
    """Softer rule: the guess shrank the hypothesis set. A set of one cannot shrink, so naming its member is enough."""
    return len(after) < len(before) or (len(before) == 1 and guess in before)
