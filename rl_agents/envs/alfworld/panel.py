"""The frozen task sets of generated games: per size 1200 to train on, 140 of seen and 134 of unseen layouts.

The test sets have the sizes of ALFWorld's valid_seen and valid_unseen. All families are equally frequent, and take
turns, so that the first tasks of a set are a balanced sample. ``test_seen`` has the layouts of ``train`` with other
placements and goals, ``test_unseen`` layouts that ``train`` lacks; no game is there twice, under whatever id.
``panel_small.json`` and ``panel_full.json`` also hold the first 12 digits of each game's sha256, so that "the same
panel on two machines" can be checked. ``python -m rl_agents.envs.alfworld.panel`` writes both files again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs.alfworld.families import FAMILIES, Family
from rl_agents.envs.alfworld.generator import game_digest, generate_game
from rl_agents.envs.alfworld.scenes import FAMILY_ROOMS, SIZES, TRAIN_LAYOUTS, UNSEEN_LAYOUTS
from rl_agents.envs.panels import check_split, load_panel, make_panel, shuffled_ids, write_panel
from rl_agents.errors import unknown

SEED = "alfworld-2025"
#: split -> (number of tasks, layouts, first number of its task ids)
SPLITS = {
    "train": (1200, TRAIN_LAYOUTS, 0),
    "test_seen": (140, TRAIN_LAYOUTS, 5000),
    "test_unseen": (134, UNSEEN_LAYOUTS, 0),
}
DIGEST_DIGITS = 12
#: Training tasks that there can be: numbers up to the first of ``test_seen``, in the family with the fewest rooms.
MAX_TRAIN_TASKS = 300_000


def panel_file(size: str) -> Path:
    """Return the panel file of a size.

    Raises:
        InputError: unknown size.
    """
    if size not in SIZES:
        raise unknown("size", size, SIZES)
    return Path(__file__).with_name(f"panel_{size}.json")


def generated_tasks(size: str, split: str) -> list[str]:
    """Return the task ids of ``train``, ``test_seen`` or ``test_unseen``.

    Raises:
        InputError: unknown size or split; the panel file was changed.
    """
    panel = load_panel(panel_file(size))
    check_split(split, panel)
    return list(panel[split])


@lru_cache(maxsize=4)
def training_tasks(size: str, count: int) -> tuple[str, ...]:
    """Return ``count`` ids to train on: the first of the panel, beyond it what the generator makes of other numbers.

    Families take turns throughout. Ids differ from those of the test sets; games are compared with the test games in
    the panel only, so that beyond it one may be a test game under another number.

    Raises:
        InputError: unknown size; the panel file was changed.
    """
    tasks = generated_tasks(size, "train")
    if count <= len(tasks):
        return tuple(tasks[:count])
    _, layouts, first = SPLITS["train"]
    used = set(tasks)
    streams = [(task for task in _candidates(size, family, layouts, first) if task not in used) for family in FAMILIES]
    more = (next(streams[n % len(streams)]) for n in range(count - len(tasks)))
    return (*tasks, *more)


def frozen_panel(size: str) -> dict[str, Any]:
    """Return the panel of a size as it is stored."""
    seen: set[str] = set()
    splits: dict[str, list[str]] = {}
    for split, (count, layouts, first) in SPLITS.items():
        streams = [_distinct(_candidates(size, family, layouts, first), seen) for family in FAMILIES]
        splits[split] = [next(streams[i % len(streams)]) for i in range(count)]
    digests = {split: [short_digest(task_id) for task_id in ids] for split, ids in splits.items()}
    return {**make_panel(SEED, splits), "games": digests}


def short_digest(task_id: str) -> str:
    """Return the first digits of a game's sha256, as they stand in the panel."""
    return game_digest(generate_game(task_id))[:DIGEST_DIGITS]


def stored_digests(size: str) -> dict[str, list[str]]:
    """Return the digests of a panel's games by split, in the order of the ids."""
    stored: dict[str, list[str]] = json.loads(panel_file(size).read_text(encoding="utf-8"))["games"]
    return stored


def _candidates(size: str, family: Family, layouts: range, first: int) -> Iterator[str]:
    """Yield task ids of a family: every layout once, in random order, then again with the next number."""
    names = shuffled_ids((f"{room}-{n}" for room in FAMILY_ROOMS[family.short] for n in layouts), SEED)
    number = first
    while True:
        yield from (f"{size}/{family.short}/{name}/{number}" for name in names)
        number += 1


def _distinct(task_ids: Iterator[str], seen: set[str]) -> Iterator[str]:
    """Drop games that were drawn before; the problem's first line is its name."""
    for task_id in task_ids:
        problem = generate_game(task_id)["pddl_problem"].partition("\n")[2]
        digest = hashlib.sha256(problem.encode()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            yield task_id


if __name__ == "__main__":
    for each in SIZES:
        write_panel(panel_file(each), frozen_panel(each))
