"""The tasks of long_form_qa and the documents behind them: the generated almanac, or files of one's own.

1000 train and 200 test questions about the almanac are called ``almanac/train/0007``; no two ask for the same things.
``panel.json`` holds hashes of all documents and questions; ``python -m rl_agents.envs.long_form_qa.tasks``
writes it again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

from rl_agents.envs.long_form_qa.almanac import Wish, compact_text, draw_wishes, passages
from rl_agents.envs.long_form_qa.questions import QuestionSet, Task, load_questions
from rl_agents.envs.long_form_qa.spec import LongFormQAOptions
from rl_agents.envs.panels import check_split, ids_digest, unknown_task, write_panel
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import PassageStore

SEED = "long_form_qa-2026"
SIZES = {"train": 1000, "test": 200}
STYLES = ("paper", "compact")
PANEL_FILE = Path(__file__).with_name("panel.json")
_TASK_ID = re.compile(r"almanac/(train|test)/(\d{4})")


def task_ids(split: str, options: LongFormQAOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of one's own questions, or of the almanac.

    Raises:
        InputError: another split, or files that cannot be used.
    """
    own = own_questions(options)
    return almanac_ids(split) if own is None else list(own.splits[split])


def almanac_ids(split: str) -> list[str]:
    """Return the ``train`` or ``test`` ids of the almanac's questions."""
    check_split(split, {name: () for name in SIZES})
    return [f"almanac/{split}/{number:04d}" for number in range(SIZES[split])]


def own_questions(options: LongFormQAOptions) -> QuestionSet | None:
    """Return the questions of one's own files; None when none are named.

    Raises:
        InputError: only one of the files is named, one cannot be read, or the style is for the almanac alone.
    """
    if not options.documents and not options.questions:
        return None
    if not options.documents or not options.questions:
        raise InputError("env.documents and env.questions belong together: name both files, or none for the almanac")
    if options.prompt == "compact":
        raise InputError("env.prompt=compact knows the almanac's words alone; use env.prompt=paper for your documents")
    return load_questions(options.questions, options.test_share, options.columns)


def find_task(task_id: str, own: QuestionSet | None, style: str = "paper") -> Task:
    """Return the task called ``task_id``.

    Raises:
        InputError: unknown id; the message offers the nearest.
    """
    if own is not None:
        return own.find(task_id)
    wishes = wishes_of(task_id)
    if style == "compact":
        points = tuple(" ".join(wish.words) for wish in wishes)
        question = " ".join(f"{' '.join(wish.words[:2])} ." for wish in wishes)
        return Task(task_id, f"question : {question}", points, (compact_text(wishes),))
    points = tuple(wish.point for wish in wishes)
    return Task(task_id, " ".join(wish.question for wish in wishes), points, (" ".join(points),))


def wishes_of(task_id: str) -> tuple[Wish, ...]:
    """Return what a question about the almanac asks for.

    Raises:
        InputError: unknown id.
    """
    match = _TASK_ID.fullmatch(task_id)
    if match is None or int(match[2]) >= SIZES[match[1]]:
        raise unknown_task("long_form_qa", task_id, almanac_ids("test"), "almanac/<split>/<number>")
    return _drawn()[match[1]][int(match[2])]


@lru_cache(maxsize=1)
def _drawn() -> dict[str, list[tuple[Wish, ...]]]:
    """Draw questions until there are enough that ask for different things; the first are the test's."""
    found: dict[frozenset[Wish], tuple[Wish, ...]] = {}
    for number in count():
        wishes = draw_wishes(f"{SEED}/{number}")
        found.setdefault(frozenset(wishes), wishes)
        if len(found) == sum(SIZES.values()):
            break
    questions = list(found.values())
    return {"test": questions[: SIZES["test"]], "train": questions[SIZES["test"] :]}


def open_store(documents: str, style: str) -> PassageStore:
    """Return the documents, indexed.

    Raises:
        InputError: a file that cannot be used.
    """
    return PassageStore.open(documents) if documents else _almanac_store(style)


@lru_cache(maxsize=len(STYLES))
def _almanac_store(style: str) -> PassageStore:
    return PassageStore.build(passages(style))


def frozen_panel() -> dict[str, Any]:
    """Return the panel as it is stored in ``panel.json``: hashes over documents and tasks in both styles."""
    digests = {}
    for style in STYLES:
        digests[f"{style}/documents"] = ids_digest(f"{p.id}|{p.title}|{p.text}" for p in passages(style))
        for split in SIZES:
            tasks = (find_task(task_id, None, style) for task_id in almanac_ids(split))
            digests[f"{style}/{split}"] = ids_digest(f"{t.task_id}|{t.question}|{'|'.join(t.points)}" for t in tasks)
    return {"seed": SEED, "sizes": SIZES, "sha256": digests}


if __name__ == "__main__":
    write_panel(PANEL_FILE, frozen_panel())
