"""The tasks of PreferenceEstimation, such as ``5-10-11-uniform/test/0007``: size, sampling, split, number.

A task is a pure function of its id (sha256). ``<setting>/spare/123456`` is in neither split, for demonstrations.

Source: T3, appendix C.1, tables 2 and 5. The paper publishes neither its tasks, nor the number of attributes (here 5),
nor the scales (here 0, 0.1, ..., 1 for scores and weights), nor the skewed distributions (`SAMPLINGS`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from rl_agents.config.options import keys_of, read_options
from rl_agents.envs.options import part_of
from rl_agents.envs.preference_estimation import PreferenceEstimationOptions, SizeKeys
from rl_agents.envs.preferences import Levels, Movie
from rl_agents.envs.task_sets import drawn_ids, numbered_ids, unknown_task
from rl_agents.errors import InputError

SEED = "preference_estimation-2025"
SIZES = {"train": 700, "test": 300}

SAMPLINGS: Mapping[str, Callable[[int, int], int]] = {
    "uniform": lambda level, top: 1,
    "min-max": lambda level, top: (2 * level - top) ** 2 + 1,
    "max": lambda level, top: (level + 1) ** 2,
    "balanced": lambda level, top: 1,
}
"""(level, top) -> relative frequency of a level of 0..top: higher at both ends, or at the upper end. ``balanced`` keeps
movies whose scores add up to half the highest sum, so that no movie is good for all users."""

_TASK_ID = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{1,3})-([a-z-]{1,16})/(?:(train|test)/(\d{4})|spare/\d{6})", re.ASCII)


@dataclass(frozen=True)
class Setting(SizeKeys):
    """Size of a task."""

    def __post_init__(self) -> None:
        if self.sampling == "balanced" and self.movies > self._balanced_movies():
            raise InputError(f"env.movies is {self.movies}: only {self._balanced_movies()} balanced ones are different")

    @property
    def balanced_sum(self) -> int:
        """Half the highest sum of a movie's scores, in levels."""
        return self.attributes * (self.levels - 1) // 2

    def _balanced_movies(self) -> int:
        """Count the different vectors of levels that add up to `balanced_sum`."""
        counts = [1]  # by sum, of the vectors with the attributes so far
        for _ in range(self.attributes):
            counts = [
                sum(counts[max(0, total - self.levels + 1) : total + 1])
                for total in range(len(counts) + self.levels - 1)
            ]
        return counts[self.balanced_sum]

    @property
    def different(self) -> int:
        vectors = self.levels**self.attributes
        movies = self._balanced_movies() if self.sampling == "balanced" else vectors
        return (vectors - 1) * math.comb(movies, self.movies)

    @property
    def name(self) -> str:
        """As in task ids, for example ``5-10-11-uniform``."""
        return f"{self.attributes}-{self.movies}-{self.levels}-{self.sampling}"


STARTER_SETTING = Setting(attributes=3, levels=6, sampling="balanced")
"""The smaller setting of the warm-start model."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task: the movies, and the hidden weights of the user in levels."""

    task_id: str
    levels: int
    movies: tuple[Movie, ...]
    weights: Levels

    @property
    def content(self) -> tuple[frozenset[Levels], Levels]:
        """The movies in any order, and the weights."""
        return frozenset(movie.scores for movie in self.movies), self.weights


def task_ids(split: str, options: PreferenceEstimationOptions) -> list[str]:
    setting = part_of(Setting, options)
    return drawn_ids(setting.name, split, SIZES, setting.different, lambda name: find_task(name).content)


@lru_cache(maxsize=4096)
def find_task(task_id: str) -> Task:
    match = _TASK_ID.fullmatch(task_id)
    if match is None or match[4] not in SAMPLINGS or (match[5] and int(match[6]) >= SIZES[match[5]]):
        form = "<attributes>-<movies>-<levels>-<sampling>/<split>/<number>"
        raise unknown_task("preference_estimation", task_id, numbered_ids(Setting().name, "test", SIZES), form)
    values = zip(keys_of(Setting), match.groups(), strict=False)
    setting = read_options(Setting, dict(values), prefix="env.")
    seed = f"{SEED}/{task_id}"
    weights = next(vector for vector in _vectors(f"{seed}/weights", setting, "uniform") if any(vector))
    scores: list[Levels] = []
    for vector in _vectors(f"{seed}/movies", setting, setting.sampling):
        if vector not in scores:
            scores.append(vector)
        if len(scores) == setting.movies:
            break
    movies = tuple(Movie(f"Movie_{number}", vector) for number, vector in enumerate(scores, start=1))
    return Task(task_id, setting.levels, movies, weights)


def _vectors(seed: str, setting: Setting, sampling: str) -> Iterator[Levels]:
    """Yield vectors of levels, drawn by the sha256 of a counter."""
    frequency, top = SAMPLINGS[sampling], setting.levels - 1
    urn = [level for level in range(setting.levels) for _ in range(frequency(level, top))]
    for number in count():
        digests = (hashlib.sha256(f"{seed}/{number}/{i}".encode()).digest() for i in range(setting.attributes))
        vector = tuple(urn[int.from_bytes(digest[:8], "big") % len(urn)] for digest in digests)
        if sampling != "balanced" or sum(vector) == setting.balanced_sum:
            yield vector
