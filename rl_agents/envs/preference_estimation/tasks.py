"""The task sets of PreferenceEstimation: 700 train and 300 test tasks for every setting.

A setting is the number of attributes, the number of reference movies and how their scores are sampled; T3 trains on 10
movies with uniform scores and tests out of distribution on 5 to 30 movies and skewed scores. A task id is
``<attributes>-<movies>-<levels>-<sampling>/<split>/<number>``, for example ``5-10-11-uniform/test/0007``. The task is a
pure function of its id (through sha256, so of no library's generator), and ``panel.json`` holds the hash of all tasks
of every setting in the paper and of the starter's; ``python -m rl_agents.envs.preference_estimation.tasks`` writes
that file again. ``<setting>/spare/123456`` is one of a million further tasks, of neither split, for demonstrations.

Source: T3, appendix C.1, tables 2 and 5. The paper publishes neither its tasks, nor the number of attributes (here 5),
nor the scales (here 0, 0.1, ..., 1 for scores and weights), nor the skewed distributions (`SAMPLINGS`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from rl_agents.envs.panels import check_split, ids_digest, unknown_task, write_panel
from rl_agents.envs.preferences import Levels, Movie, check_range
from rl_agents.errors import InputError, unknown

SEED = "preference_estimation-2025"
SIZES = {"train": 700, "test": 300}
PANEL_FILE = Path(__file__).with_name("panel.json")

SAMPLINGS: Mapping[str, Callable[[int, int], int]] = {
    "uniform": lambda level, top: 1,
    "min-max": lambda level, top: (2 * level - top) ** 2 + 1,
    "max": lambda level, top: (level + 1) ** 2,
    "balanced": lambda level, top: 1,
}
"""How often a level of 0..top is drawn for a score, relative to the others: at both ends, or at the upper end.
``balanced`` keeps the movies whose scores add up to half the highest sum, so that none is good for everybody."""

MAX_ATTRIBUTES, MAX_MOVIES, MAX_LEVELS = 16, 64, 101
_TASK_ID = re.compile(r"(\d{1,2})-(\d{1,2})-(\d{1,3})-([a-z-]{1,16})/(?:(train|test)/(\d{4})|spare/\d{6})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """Size and distribution of a task.

    Attributes:
        attributes: n, the length of the preference vector, 3 to 16.
        movies: reference movies, all different, 2 to 64.
        levels: number of different scores and weights, 5 to 101: 11 is 0, 0.1, ..., 1.
        sampling: of their scores: a name of `SAMPLINGS`.
    """

    attributes: int = 5
    movies: int = 10
    levels: int = 11
    sampling: str = "uniform"

    def __post_init__(self) -> None:
        check_range("attributes", self.attributes, 3, MAX_ATTRIBUTES)
        check_range("movies", self.movies, 2, MAX_MOVIES)
        check_range("levels", self.levels, 5, MAX_LEVELS)
        if self.sampling not in SAMPLINGS:
            raise unknown("value of env.sampling", self.sampling, SAMPLINGS)
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
    def name(self) -> str:
        """As in task ids, for example ``5-10-11-uniform``."""
        return f"{self.attributes}-{self.movies}-{self.levels}-{self.sampling}"


STARTER_SETTING = Setting(attributes=3, levels=6, sampling="balanced")
"""The smaller instance of the starter model."""

PAPER_SETTINGS = (
    Setting(),
    *(Setting(movies=movies) for movies in (5, 15, 20, 30)),
    *(Setting(sampling=sampling) for sampling in ("min-max", "max")),
)
"""Training and the out-of-distribution settings of T3's table 2."""


@dataclass(frozen=True, slots=True)
class Task:
    """One instance: the reference movies and, hidden, the user's weights in levels."""

    task_id: str
    levels: int
    movies: tuple[Movie, ...]
    weights: Levels


def task_ids(
    split: str, *, attributes: int = 5, movies: int = 10, levels: int = 11, sampling: str = "uniform", **_: Any
) -> list[str]:
    """Return the ``train`` or ``test`` ids of a setting; other options do not matter here."""
    check_split(split, {name: () for name in SIZES})
    name = Setting(attributes, movies, levels, sampling).name
    return [f"{name}/{split}/{number:04d}" for number in range(SIZES[split])]


@lru_cache(maxsize=4096)
def find_task(task_id: str) -> Task:
    """Return the task called ``task_id``.

    Raises:
        InputError: unknown id; the message offers the nearest.
    """
    match = _TASK_ID.fullmatch(task_id)
    if match is None or match[4] not in SAMPLINGS or (match[5] and int(match[6]) >= SIZES[match[5]]):
        form = "<attributes>-<movies>-<levels>-<sampling>/<split>/<number>"
        raise unknown_task("preference_estimation", task_id, task_ids("test"), form)
    setting = Setting(int(match[1]), int(match[2]), int(match[3]), match[4])
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
    """Yield vectors of levels, drawn by the sha256 of a running number."""
    frequency, top = SAMPLINGS[sampling], setting.levels - 1
    urn = [level for level in range(setting.levels) for _ in range(frequency(level, top))]
    for number in count():
        digests = (hashlib.sha256(f"{seed}/{number}/{i}".encode()).digest() for i in range(setting.attributes))
        vector = tuple(urn[int.from_bytes(digest[:8], "big") % len(urn)] for digest in digests)
        if sampling != "balanced" or sum(vector) == setting.balanced_sum:
            yield vector


def setting_digest(setting: Setting, split: str) -> str:
    """Return the sha256 over the contents of all tasks of a setting."""
    tasks = (find_task(task_id) for task_id in task_ids(split, **asdict(setting)))
    return ids_digest(f"{t.task_id}: {[movie.scores for movie in t.movies]} = {t.weights}" for t in tasks)


def frozen_panel() -> dict[str, Any]:
    """Return the panel as it is stored in ``panel.json``."""
    digests = {
        f"{s.name}/{split}": setting_digest(s, split) for s in (*PAPER_SETTINGS, STARTER_SETTING) for split in SIZES
    }
    return {"seed": SEED, "sizes": SIZES, "sha256": digests}


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
