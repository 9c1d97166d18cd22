"""The tasks of MovieRecommendation: 1,000 sessions of each size, each a pure function of its id.

An id such as ``5-10-10-11-11-uniform/0042`` is attributes, seen movies, unseen movies, levels of a score, levels of a
weight, sampling, and the number. ``<size>/spare/123456`` is in neither split, for demonstrations.

Source: T3, appendix C.1 and table 5 (700 and 300; the paper publishes neither its movies nor most sizes).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from rl_agents.envs.movie_recommendation import MovieRecommendationOptions
from rl_agents.envs.preferences import Levels, Movie, best_movies
from rl_agents.envs.task_sets import TaskSets, held_out, unknown_task

TASKS, TESTS = 1000, 300
SPLIT_SEED = "movie_recommendation-2025"
DRAWS = 10_000

_NUMBER = re.compile(r"(\d{4})|spare/\d{6}", re.ASCII)


@dataclass(frozen=True)
class Size:
    """The size of a session.

    Attributes:
        attributes: length of the preference vector.
        seen, unseen: movies for questions, and for the recommendation.
        score_levels, weight_levels: number of different scores and weights, evenly spaced in [0, 1].
        sampling: ``balanced`` keeps movies whose scores add up to half the highest sum, so that guessing without a
            question does not pay off.
    """

    attributes: int
    seen: int
    unseen: int
    score_levels: int
    weight_levels: int
    sampling: Literal["uniform", "balanced"]

    @property
    def name(self) -> str:
        numbers = (self.attributes, self.seen, self.unseen, self.score_levels, self.weight_levels)
        return "-".join(map(str, (*numbers, self.sampling)))


STARTER_SIZE = Size(3, 5, 4, 5, 3, "balanced")
SIZES = {"paper": Size(5, 10, 10, 11, 11, "uniform"), "small": STARTER_SIZE}


@dataclass(frozen=True, slots=True)
class Task:
    """One session: the user's hidden ``weights`` (in levels), the seen and the unseen movies."""

    task_id: str
    size: Size
    weights: Levels
    seen: tuple[Movie, ...]
    unseen: tuple[Movie, ...]

    @property
    def best(self) -> Movie:
        return best_movies(self.weights, self.unseen)[0]


@lru_cache(maxsize=4096)
def find_task(task_id: str) -> Task:
    name, _, number = task_id.partition("/")
    found = _NUMBER.fullmatch(number)
    size = next((size for size in SIZES.values() if size.name == name), None)
    if not found or size is None or int(found[1] or 0) >= TASKS:
        near = [f"{SIZES['paper'].name}/{number:04d}" for number in range(TASKS)]
        raise unknown_task("movie_recommendation", task_id, near, f"<size>/<0000 to {TASKS - 1:04d}>, {near[0]}")
    return _draw_task(task_id, size)


def _draw_task(task_id: str, size: Size) -> Task:
    """Draw a session from a generator seeded with its id, until exactly one unseen movie is the best."""
    rng = random.Random(f"movie_recommendation/{task_id}")

    def draw(n: int) -> int:
        return int(rng.random() * n)  # the only method whose numbers are the same in all Python versions

    for _ in range(DRAWS):
        weights = tuple(draw(size.weight_levels) for _ in range(size.attributes))
        movies = _draw_movies(draw, size)
        seen, unseen = movies[: size.seen], movies[size.seen :]
        if any(weights) and len(best_movies(weights, unseen)) == 1:
            return Task(task_id, size, weights, seen, unseen)
    raise ValueError(f"no session of size {size.name} has a best movie")


def _draw_movies(draw: Callable[[int], int], size: Size) -> tuple[Movie, ...]:
    top, wanted = size.score_levels - 1, size.seen + size.unseen
    total = size.attributes * top // 2
    found: dict[Levels, None] = {}
    for _ in range(DRAWS):
        scores = tuple(draw(size.score_levels) for _ in range(size.attributes))
        if size.sampling == "uniform" or sum(scores) == total:
            found[scores] = None
        if len(found) == wanted:
            return tuple(Movie(f"Movie_{i + 1}", scores) for i, scores in enumerate(found))
    raise ValueError(f"found only {len(found)} of {wanted} different movies in {size.name}")


@cache
def _splits() -> TaskSets:
    return held_out([f"{number:04d}" for number in range(TASKS)], SPLIT_SEED, TESTS)


def task_ids(split: str, options: MovieRecommendationOptions) -> list[str]:
    return [f"{SIZES[options.size].name}/{number}" for number in _splits()[split]]
