"""The task sets of MovieRecommendation: 1,000 sessions of any size, split once into 700 train and 300 test.

A task's id names the size of the session and its number, for example ``5-10-10-11-11-uniform/0042``: attributes, seen
movies, unseen movies, levels of a score, levels of a weight, sampling. Everything in it follows from the id.
``<size>/spare/123456`` is one of a million further sessions, of neither split: demonstrations play these, because a
starter model learns 700 by heart.
The split of the numbers is frozen in ``panel.json``, together with a hash of what 1,000 sessions of the default and of
the starter's size hold; ``python -m rl_agents.envs.movie_recommendation.tasks`` writes that file again.

Source: T3, appendix C.1 and table 5 (700 and 300; the paper publishes neither its movies nor most sizes).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.config.options import option_types, read_options
from rl_agents.envs.movie_recommendation.spec import MovieRecommendationOptions, SizeKeys
from rl_agents.envs.options import part_of
from rl_agents.envs.panels import check_split, ids_digest, load_panel, split_panel, unknown_task, write_panel
from rl_agents.envs.preferences import Levels, Movie, best_movies
from rl_agents.errors import InputError

SPLIT_SEED = "movie_recommendation-2025"
TASKS, TEST_TASKS = 1000, 300
PANEL_FILE = Path(__file__).with_name("panel.json")
DRAWS = 10_000

_TASK_ID = re.compile(r"(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})-(\d{1,3})-([a-z]+)/(?:(\d{4})|spare/\d{6})", re.ASCII)


@dataclass(frozen=True)
class Size(SizeKeys):
    """How large a session is.

    ``balanced`` sampling keeps the movies whose scores add up to half the highest sum, so that no movie is good for
    everybody and guessing without a question does not pay.
    """

    @property
    def name(self) -> str:
        """As in a task id."""
        numbers = (self.attributes, self.seen, self.unseen, self.score_levels, self.weight_levels)
        return "-".join(map(str, (*numbers, self.sampling)))


DEFAULT_SIZE = Size()
STARTER_SIZE = Size(3, 5, 4, 5, 3, "balanced")


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
        """The only right recommendation."""
        return best_movies(self.weights, self.unseen)[0]


@lru_cache(maxsize=4096)
def find_task(task_id: str) -> Task:
    """Return the session called ``task_id``.

    Raises:
        InputError: no such id, or no session of that size exists.
    """
    found = _TASK_ID.fullmatch(task_id)
    if not found or (found[7] and int(found[7]) >= TASKS):
        near = [f"{DEFAULT_SIZE.name}/{number:04d}" for number in range(TASKS)]
        raise unknown_task("movie_recommendation", task_id, near, f"<size>/<0000 to {TASKS - 1:04d}>, {near[0]}")
    size = read_options(Size, dict(zip(option_types(Size), found.groups(), strict=False)), prefix="env.")
    return _draw_task(task_id, size)


def _draw_task(task_id: str, size: Size) -> Task:
    """Draw all of a session from a generator seeded with its id, until one unseen movie is the best."""
    draw = _below(random.Random(f"movie_recommendation/{task_id}"))
    for _ in range(DRAWS):
        weights = tuple(draw(size.weight_levels) for _ in range(size.attributes))
        movies = _draw_movies(draw, size)
        seen, unseen = movies[: size.seen], movies[size.seen :]
        if any(weights) and len(best_movies(weights, unseen)) == 1:
            return Task(task_id, size, weights, seen, unseen)
    raise InputError(f"movie_recommendation: no session of size {size.name} has a best movie; allow more levels")


def _below(rng: random.Random) -> Callable[[int], int]:
    """Return draw(n) -> 0..n-1 on ``rng.random()`` alone: the only method whose numbers no Python version changes."""
    return lambda n: int(rng.random() * n)


def _draw_movies(draw: Callable[[int], int], size: Size) -> tuple[Movie, ...]:
    """Draw as many different movies as the session has.

    Raises:
        InputError: too few different ones exist.
    """
    top, wanted = size.score_levels - 1, size.seen + size.unseen
    total = size.attributes * top // 2
    found: dict[Levels, None] = {}
    for _ in range(DRAWS):
        scores = tuple(draw(size.score_levels) for _ in range(size.attributes))
        if size.sampling == "uniform" or sum(scores) == total:
            found[scores] = None
        if len(found) == wanted:
            return tuple(Movie(f"Movie_{i + 1}", scores) for i, scores in enumerate(found))
    raise InputError(f"movie_recommendation: found only {len(found)} of {wanted} different movies in {size.name}")


def task_ids(split: str, options: MovieRecommendationOptions) -> list[str]:
    """Return the frozen ``train`` or ``test`` ids of the size that the options ask for."""
    return panel_ids(split, part_of(Size, options))


def panel_ids(split: str, size: Size) -> list[str]:
    """Return the frozen ids of one size."""
    panel = load_panel(PANEL_FILE)
    check_split(split, panel)
    return [f"{size.name}/{number}" for number in panel[split]]


def contents_digest(size: Size) -> str:
    """Return the sha256 over everything in the 1,000 sessions of a size."""
    tasks = (find_task(f"{size.name}/{number:04d}") for number in range(TASKS))
    return ids_digest(
        f"{t.task_id} {t.weights} {[m.scores for m in t.seen]} {[m.scores for m in t.unseen]}" for t in tasks
    )


def frozen_panel() -> dict[str, Any]:
    """Return the panel as it is stored in ``panel.json``."""
    numbers = [f"{number:04d}" for number in range(TASKS)]
    contents = {size.name: contents_digest(size) for size in (DEFAULT_SIZE, STARTER_SIZE)}
    return {**split_panel(numbers, SPLIT_SEED, TEST_TASKS), "contents": contents}


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
