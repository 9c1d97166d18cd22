"""The task sets of SituationPuzzles, and how a puzzle is found by its id.

- ``cases`` (default): 500 of the stories that our themes can tell, 400 train and 100 test, AR-Bench's sizes. Ids read
  ``lighthouse/2/raiders.pigeon.oath.reef``: theme, visible detail, values.
- ``small``: all 500 stories of four themes with their first three slots, 400 and 100, for the starter model. Ids read
  ``lighthouse/raiders.pigeon.oath``.
- ``demo``: twelve hand-written puzzles, 8 and 4, for people. Ids read ``demo/anniversary``.
- with ``env.data``: a folder with ``train.json`` and ``test.json`` in AR-Bench's format. Ids read ``train/0007``.

The splits of the first two are frozen in ``panel.json`` and ``panel_small.json``;
``python -m rl_agents.envs.situation_puzzles.tasks`` writes them again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from rl_agents.envs.panels import (
    check_split,
    ids_digest,
    load_panel,
    make_panel,
    shuffled_ids,
    unknown_task,
    write_panel,
)
from rl_agents.envs.situation_puzzles.loader import SPLITS, read_split
from rl_agents.envs.situation_puzzles.rules import Fact, Puzzle
from rl_agents.envs.situation_puzzles.spec import SituationPuzzlesOptions
from rl_agents.envs.situation_puzzles.themes import combinations, puzzle_from, themes
from rl_agents.rewards.wording import stem

SPLIT_SEED = "situation_puzzles-2025"
TRAIN_TASKS, TEST_TASKS = 400, 100
PANEL_FILES = {name: Path(__file__).with_name(file) for name, file in
               (("cases", "panel.json"), ("small", "panel_small.json"))}  # fmt: skip
DEMO_FILE = Path(__file__).with_name("demo.json")
DEMO_TEST = 4
SMALL_THEMES, SMALL_SLOTS = 4, 3


def generated_ids(puzzles: str) -> list[str]:
    """Return the ids of every story that ``cases`` or ``small`` can tell, in the themes' order."""
    if puzzles == "small":
        chosen = list(themes().values())[:SMALL_THEMES]
        return [f"{theme.name}/{'.'.join(values)}" for theme in chosen for values in combinations(theme, SMALL_SLOTS)]
    return [
        f"{theme.name}/{given}/{'.'.join(values)}"
        for theme in themes().values()
        for given in range(len(theme.given))
        for values in combinations(theme, len(theme.slots))
    ]


def task_ids(split: str, options: SituationPuzzlesOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of a puzzle set or of a folder.

    Raises:
        InputError: unreadable folder, bad records in it.
    """
    return list(read_split(options.data, split, options.bad_data)) if options.data else set_ids(options.puzzles, split)


def set_ids(puzzles: str, split: str) -> list[str]:
    """Return the ``train`` or ``test`` ids of ``cases``, ``small`` or ``demo``."""
    if puzzles != "demo":
        panel = load_panel(PANEL_FILES[puzzles])
        check_split(split, panel)
        return list(panel[split])
    ids = list(demo_puzzles())
    check_split(split, {"train": (), "test": ()})
    return ids[:-DEMO_TEST] if split == "train" else ids[-DEMO_TEST:]


def find_puzzle(task_id: str, data: str = "", bad_data: str = "error") -> Puzzle:
    """Return the puzzle called ``task_id``: of the folder ``data`` when there is one, else one of ours.

    Raises:
        InputError: unknown id; the message offers the nearest.
    """
    if data:
        split = task_id.partition("/")[0]
        known = read_split(data, split if split in SPLITS else SPLITS[0], bad_data)
        if task_id not in known:
            raise unknown_task("situation_puzzles", task_id, known, next(iter(known)))
        return known[task_id]
    found = demo_puzzles().get(task_id) or _generated(task_id)
    if found is None:
        near = [name for kind in ("small", "cases") for split in ("train", "test") for name in set_ids(kind, split)]
        raise unknown_task("situation_puzzles", task_id, [*demo_puzzles(), *near], near[0])
    return found


def _generated(task_id: str) -> Puzzle | None:
    name, _, rest = task_id.partition("/")
    given, detailed, values = rest.rpartition("/")
    theme = themes().get(name)
    if theme is None or (detailed and given not in map(str, range(len(theme.given)))):
        return None
    chosen = values.split(".")
    if len(chosen) != (len(theme.slots) if detailed else SMALL_SLOTS):
        return None
    try:
        return puzzle_from(theme, int(given or 0), chosen, task_id)
    except ValueError:
        return None


@cache
def demo_puzzles() -> dict[str, Puzzle]:
    """Return the hand-written puzzles by id, in the file's order."""
    stored = json.loads(DEMO_FILE.read_text(encoding="utf-8"))
    found = {}
    for name, entry in stored.items():
        facts = [_fact(cues, true) for true in (True, False) for cues in entry["yes" if true else "no"]]
        puzzle_id = f"demo/{name}"
        found[puzzle_id] = Puzzle(puzzle_id, entry["surface"], entry["bottom"], tuple(facts))
    return found


def _fact(cues: str, true: bool) -> Fact:
    """Read ``"deaf hear/sound"``: a question is about the fact when it has a word of every group between slashes."""
    return Fact(tuple(frozenset(map(stem, group.split())) for group in cues.split("/")), true)


def frozen_panel(puzzles: str) -> dict[str, Any]:
    """Return the panel of ``cases`` or ``small`` as it is stored, with a hash of all that its puzzles say."""
    shuffled = shuffled_ids(generated_ids(puzzles), f"{SPLIT_SEED}-{puzzles}")[: TRAIN_TASKS + TEST_TASKS]
    splits = {"train": sorted(shuffled[TEST_TASKS:]), "test": sorted(shuffled[:TEST_TASKS])}
    return {**make_panel(f"{SPLIT_SEED}-{puzzles}", splits), "contents": contents_digest(sorted(shuffled))}


def contents_digest(ids: Iterable[str]) -> str:
    """Return the sha256 over surface, bottom and facts of the puzzles."""
    puzzles = (find_puzzle(task_id) for task_id in ids)
    return ids_digest(
        f"{p.surface}|{p.bottom}|{[([sorted(group) for group in fact.cues], fact.true) for fact in p.facts]}"
        for p in puzzles
    )


if __name__ == "__main__":
    for puzzle_set, file in PANEL_FILES.items():
        write_panel(file, frozen_panel(puzzle_set))
