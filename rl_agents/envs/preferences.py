"""Hidden preferences over movies, as pure functions, for PreferenceEstimation and MovieRecommendation.

A movie has a score on each of n attributes, a user a weight in [0, 1] for each; satisfaction is their weighted sum.
Scores and weights are whole levels 0..L-1, shown as level / (L - 1): comparisons are exact, so "Equal" means equal.

Source: T3 (arXiv 2510.12264), appendix C.1.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rl_agents.envs.stateful import TaggedAction, malformed

Levels = tuple[int, ...]
Vector = tuple[float, ...]

YES, NO, EQUAL = "Yes", "No", "Equal"

#: T3's figure 10 with the fields n (attributes), seen (number of movies) and movies.
PAPER_PROMPT = """\
You are a movie recommendation agent. Your goal is to infer the hidden user preference vector (w1,...,w{n}) through \
interaction.

## Setup:
- You are given {seen} movies with scores on {n} attributes (indexed 1...{n}):
{movies}
- User satisfaction = w1*attr1 + ... + w{n}*attr{n}, where each wi in [0,1]. The user always answers consistently.

## Interaction Rules (per round):
1. Reflect on all past feedback and reason about how it changes your estimate of the preference vector.
- Think about which attributes gained or lost importance.
- Adjust your estimate strategically.
2. Output both your updated guess and a new pairwise query in the exact format:
<interact>
Guess: w1,w2,...
Question: Would you prefer option_1 over option_2?
</interact>
- Guess must be comma-separated numbers in [0,1].
- option_1 and option_2 must be movie names only. The user replies with one of: "Yes" (prefer option_1), "No" (prefer \
option_2), or "Equal".

## Final Stage:
Once you are confident about the user preference after several turns, output your final preference vector as:
<answer>w1,w2,...,w{n}</answer>

Please Start with your first <interact> block."""

_NUMBER = re.compile(r"(?:\d{1,3}(?:\.\d{0,12})?|\.\d{1,12})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Movie:
    """A movie and its scores, in levels."""

    name: str
    scores: Levels


def satisfaction(weights: Sequence[float], movie: Movie) -> float:
    """Return Σ_i w_i·s_i; a whole number if the weights are levels."""
    return sum(w * s for w, s in zip(weights, movie.scores, strict=True))


def preference(weights: Levels, first: Movie, second: Movie) -> str:
    """Return the user's answer to "Would you prefer first over second?".

    >>> preference((2, 0), Movie("a", (1, 0)), Movie("b", (0, 4)))
    'Yes'
    """
    difference = satisfaction(weights, first) - satisfaction(weights, second)
    return EQUAL if difference == 0 else YES if difference > 0 else NO


def best_movies(weights: Sequence[float], movies: Sequence[Movie]) -> tuple[Movie, ...]:
    """Return the movies with the highest satisfaction, in their order."""
    values = [satisfaction(weights, movie) for movie in movies]
    highest = max(values)
    return tuple(movie for movie, value in zip(movies, values, strict=True) if value == highest)


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 if either is zero.

    >>> round(cosine((1, 0), (1, 1)), 4)
    0.7071
    """
    norms = math.sqrt(sum(x * x for x in first) * sum(y * y for y in second))
    return 0.0 if norms == 0 else sum(x * y for x, y in zip(first, second, strict=True)) / norms


def progresses(before: float | None, after: float) -> bool:
    """T3's rule for estimates: Sim(v_t, w) - Sim(v_t-1, w) > 0; the last one is closer to the hidden weights.

    The first estimate is progress. An unchanged one or a multiple of it is a stall, so a gain below 1e-9 is a rounding
    error.
    """
    return before is None or after > before + 1e-9


def shown(level: int, levels: int) -> str:
    """Return a level in the agent's form.

    >>> shown(3, 11), shown(1, 3), shown(2, 3)
    ('0.3', '0.5', '1')
    """
    return f"{round(level / (levels - 1), 3):g}"


def shown_vector(vector: Sequence[int], levels: int) -> str:
    """Return levels as comma-separated numbers.

    >>> shown_vector((0, 1, 2), 3)
    '0,0.5,1'
    """
    return ",".join(shown(level, levels) for level in vector)


def read_vector(text: str, length: int) -> Vector | None:
    """Read ``length`` comma-separated numbers in [0, 1], with or without brackets; None for other texts.

    >>> read_vector("[0.2, 1,.5]", 3)
    (0.2, 1.0, 0.5)
    """
    parts = [part.strip() for part in text.strip().removeprefix("[").removesuffix("]").split(",", maxsplit=length)]
    if len(parts) != length or not all(_NUMBER.fullmatch(part) for part in parts):
        return None
    vector = tuple(float(part) for part in parts)
    return vector if max(vector) <= 1.0 else None


#: Longest question, so that parsing stays cheap.
MAX_QUESTION = 2000
_PAPER_QUESTION = re.compile(r"Guess: ?([^:]*?) ?Question: ?Would you prefer (\S+) over (\S+?) ?\??", re.IGNORECASE)
_COMPACT_QUESTION = re.compile(r"(\S+) (\S+) (\S+)")


@dataclass(frozen=True, slots=True)
class Question:
    """A readable question: its estimate of the weights, and the positions of the two movies."""

    estimate: Vector
    first: int
    second: int

    def reply(self, weights: Levels, movies: Sequence[Movie]) -> str:
        return preference(weights, movies[self.first], movies[self.second])


#: Problems of a malformed question.
PROBLEMS = NOT_A_QUESTION, NOT_A_VECTOR, UNKNOWN_MOVIE = "not-a-question", "not-a-vector", "unknown-movie"


def read_question(
    content: str,
    compact: bool,
    estimate: Callable[[str], Vector | None],
    names: Sequence[str],
    same: str,
) -> Question | TaggedAction:
    """Read the content of ``<interact>``; a malformed action if it is not an estimate and two known movies.

    Args:
        estimate: reads the text of an estimate; None if it is none.
        names: of the movies.
        same: the problem of a question about one movie.
    """
    form = _COMPACT_QUESTION if compact else _PAPER_QUESTION
    found = form.fullmatch(" ".join(content.split())) if len(content) <= MAX_QUESTION else None
    if found is None:
        return malformed(NOT_A_QUESTION)
    vector = estimate(found[1])
    if vector is None:
        return malformed(NOT_A_VECTOR)
    if found[2] not in names or found[3] not in names:
        return malformed(UNKNOWN_MOVIE)
    return malformed(same) if found[2] == found[3] else Question(vector, names.index(found[2]), names.index(found[3]))


#: Positions i < j of two movies, and 1 (i is preferred), -1 (j is preferred) or 0 (equal).
Comparison = tuple[int, int, int]


def comparison(first: int, second: int, reply: str) -> Comparison:
    """Return the result of the ``reply`` to "first over second?", which does not depend on the order of the movies.

    >>> comparison(3, 1, "Yes") == comparison(1, 3, "No") == (1, 3, -1)
    True
    """
    sign = 0 if reply == EQUAL else 1 if reply == YES else -1
    return (first, second, sign) if first < second else (second, first, -sign)


@cache
def possible_weights(environment: str, attributes: int, levels: int, most: int) -> NDArray[np.int64]:
    """Return weight vectors in levels, [vectors, attributes]: all except zero, or at most ``most`` drawn ones."""
    if levels**attributes <= most:
        vectors: Sequence[Sequence[int]] = list(itertools.product(range(levels), repeat=attributes))
    else:
        rng = random.Random(f"{environment} belief {attributes} {levels}")
        vectors = [[int(rng.random() * levels) for _ in range(attributes)] for _ in range(most)]
    return np.array([vector for vector in vectors if any(vector)], dtype=np.int64)


def agreeing(weights: NDArray[np.int64], movies: Sequence[Movie], replies: Iterable[Comparison]) -> NDArray[np.int64]:
    """Return the weight vectors that contradict the fewest replies (none, unless the vectors are a sample)."""
    wrong = np.zeros(len(weights), dtype=np.int64)
    for first, second, sign in replies:
        wrong += np.sign(weights @ (np.array(movies[first].scores) - np.array(movies[second].scores))) != sign
    return np.asarray(weights[wrong == wrong.min()])
