"""The task sets of CircuitDecoding: 1000 train and 300 test tasks for every setting.

A setting is how many circuits are hidden among how many candidates; T3 trains on 2 among 10 and tests out of
distribution on up to 4 circuits and up to 30 candidates; ``env.sizes`` mixes several. A task id is
``<circuits>-<candidates>/<split>/<number>``, for example ``2-10/test/0007``. The task is a pure function of its id
(through sha256, so of no library's generator), and ``panel.json`` holds the hash of all tasks of every setting in the
paper.

Source: T3, appendix C.1, tables 2 and 5 (sizes and settings; the paper's own tasks are not published).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from functools import lru_cache

from rl_agents.config.options import read_options
from rl_agents.envs.circuit_decoding import CircuitDecodingOptions, SizeKeys
from rl_agents.envs.circuit_decoding.rules import LABELS, functions
from rl_agents.envs.options import part_of
from rl_agents.envs.panels import numbered_ids, shuffled_ids, unknown_task
from rl_agents.errors import InputError

SEED = "circuit_decoding-2025"
SIZES = {"train": 1000, "test": 300}
_SIZE = re.compile(r"(\d{1,2})-(\d{1,2})")
_TASK_ID = re.compile(r"(\d{1,2})-(\d{1,2})/(train|test)/(\d{4})")


@dataclass(frozen=True)
class Setting(SizeKeys):
    """Size of a task.

    Raises:
        InputError: more hidden circuits than candidates.
    """

    def __post_init__(self) -> None:
        if self.candidates < self.circuits:
            raise InputError(f"env.candidates={self.candidates}: must be at least env.circuits={self.circuits}")

    @property
    def name(self) -> str:
        """As in task ids, for example ``2-10``."""
        return f"{self.circuits}-{self.candidates}"


PAPER_SETTINGS = (
    *(Setting(2, candidates) for candidates in (10, 15, 20, 25, 30)),
    *(Setting(circuits, 10) for circuits in (3, 4)),
)
"""Training (2 among 10) and the out-of-distribution settings of T3's table 2."""


@dataclass(frozen=True, slots=True)
class Task:
    """One instance.

    Attributes:
        task_id: its name in the panel.
        tables: truth tables of the candidates, all different.
        expressions: how each candidate is written.
        hidden: positions of the hidden circuits in the candidate list, in the order of their labels.
    """

    task_id: str
    tables: tuple[str, ...]
    expressions: tuple[str, ...]
    hidden: tuple[int, ...]

    @property
    def labels(self) -> str:
        """Labels of the hidden circuits, such as ``AB``."""
        return LABELS[: len(self.hidden)]


def task_ids(split: str, options: CircuitDecodingOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids that the options ask for; those of several settings in turn."""
    return list(_mixed_ids(split, chosen_settings(options)))


@lru_cache(maxsize=32)  # every environment asks
def _mixed_ids(split: str, settings: tuple[Setting, ...]) -> tuple[str, ...]:
    return tuple(
        itertools.chain(*zip(*(numbered_ids(setting.name, split, SIZES) for setting in settings), strict=True))
    )


def chosen_settings(options: CircuitDecodingOptions) -> tuple[Setting, ...]:
    """Read the option ``sizes``: ``one``, that of the keys, or names as a comma-separated text or a list.

    Raises:
        InputError: a name that is no size, one named twice, or no name at all.
    """
    if options.sizes == "one":
        return (part_of(Setting, options),)
    names = options.sizes.split(",") if isinstance(options.sizes, str) else options.sizes
    settings = tuple(_named(name.strip()) for name in names)
    if not settings or len(set(settings)) < len(settings):
        raise InputError(f"env.sizes={','.join(names)}: sizes are needed, each once, such as 1-2,2-6")
    return settings


def _named(name: str) -> Setting:
    match = _SIZE.fullmatch(name)
    if match is None:
        raise InputError(f"env.sizes: '{name}' is no size: one, or <circuits>-<candidates>, such as 1-2,2-6")
    return _setting(match[1], match[2])


def _setting(circuits: str, candidates: str) -> Setting:
    given = {"circuits": int(circuits), "candidates": int(candidates)}
    return read_options(Setting, given, prefix="env.", chosen=())


@lru_cache(maxsize=4096)
def find_task(task_id: str) -> Task:
    """Return the task called ``task_id``.

    Raises:
        InputError: unknown id; the message offers the nearest.
    """
    match = _TASK_ID.fullmatch(task_id)
    if match is None or int(match[4]) >= SIZES[match[3]]:
        raise unknown_task(
            "circuit_decoding",
            task_id,
            numbered_ids(Setting().name, "test", SIZES),
            "<circuits>-<candidates>/<split>/<number>",
        )
    setting = _setting(match[1], match[2])
    seed = f"{SEED}/{setting.name}/{match[3]}/{match[4]}"
    tables = tuple(shuffled_ids(functions(), seed)[: setting.candidates])
    expressions = tuple(shuffled_ids(functions()[table], seed)[0] for table in tables)
    hidden = shuffled_ids(tables, f"{seed}/hidden")[: setting.circuits]
    return Task(task_id, tables, expressions, tuple(tables.index(table) for table in hidden))
