"""The tasks of long_form_qa and the documents behind them: the generated almanac, or files of one's own.

1000 train and 200 test questions about the almanac are called ``almanac/train/0007``; no two ask for the same things.
``panel.json`` holds hashes of all documents and questions.

Questions from a table, for documents of one's own.

| key | value |
|---|---|
| ``question`` | text |
| ``points`` | list of texts: what an answer has to state, a sentence each that stands alone |
| ``answers`` | list of texts, or ``answer``: one: whole reference answers; the points in a row when absent |
| ``id`` | text or number; the place in the file, from 1, when absent |
| ``split`` | ``train`` or ``test``; a share is drawn by hash when absent |
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rl_agents.data.row_cache import Entry, KeptRows, keep
from rl_agents.data.tables import Table, open_table
from rl_agents.envs.long_form_qa import LongFormQAOptions
from rl_agents.envs.long_form_qa.almanac import Wish, compact_text, draw_wishes, passages
from rl_agents.envs.panels import numbered_ids, shuffled_ids, unknown_task
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import PassageStore

SPLITS = ("train", "test")
SPLIT_SEED = "long_form_qa-2026"
MAX_QUESTION, MAX_POINT, MAX_ANSWER = 8000, 2000, 20_000
MAX_POINTS = 50
_KEYS = ("question", "points", "answers", "answer", "id", "split")


@dataclass(frozen=True, slots=True)
class Task:
    """A question.

    Attributes:
        points: what an answer has to state, a sentence each.
        references: whole answers.
    """

    task_id: str
    question: str
    points: tuple[str, ...]
    references: tuple[str, ...]


@dataclass(frozen=True)
class QuestionSet:
    """The questions of a table, and its two task sets."""

    kept: KeptRows
    splits: Mapping[str, tuple[str, ...]]

    def find(self, task_id: str) -> Task:
        """Return a question.

        Raises:
            InputError: there is none of that id.
        """
        if task_id not in self.kept:
            ids = self.splits["train"] + self.splits["test"]
            raise unknown_task("long_form_qa", task_id, ids[:5000], ids[0])
        question, points, references = self.kept.get(task_id)
        return Task(task_id, question, tuple(points), tuple(references))


def load_questions(name: str, test_share: float, columns: Mapping[str, str] | None = None) -> QuestionSet:
    """Read a table of questions; once, and again when it changes.

    Raises:
        InputError: the table or a question cannot be read; the line is named.
    """
    try:
        table = open_table(name, columns, _KEYS, "env.columns")
    except InputError as error:
        raise InputError(f"env.questions={error}") from error
    return _loaded(table, test_share, table.version())


@lru_cache(maxsize=4)  # every environment asks
def _loaded(table: Table, test_share: float, version: str) -> QuestionSet:
    kept = keep(table.name, f"long_form_qa/{version}", lambda: _entries(table))
    given = dict(kept.splits())
    if not given:
        raise InputError(f"env.questions={table.name}: no questions in it")
    return QuestionSet(kept, _splits(given, test_share))


def _entries(table: Table) -> Iterator[Entry]:
    seen: set[str] = set()
    for count, row in enumerate(table, start=1):
        try:
            task, split = read_question(row.record(), count)
            if task.task_id in seen:
                raise ValueError(f"the id {task.task_id!a} occurs twice")
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from error
        seen.add(task.task_id)
        yield task.task_id, split, [task.question, task.points, task.references]


def read_question(record: Any, number: int) -> tuple[Task, str]:
    """Read one question and its split (empty when not given); ``number`` is its place.

    Raises:
        ValueError: what is wrong with it.
    """
    if not isinstance(record, dict):
        raise ValueError(f"a question is {type(record).__name__}, not an object")
    if unexpected := next((key for key in record if key not in _KEYS), None):
        raise ValueError(f"unknown key {unexpected!a}; a question has: {', '.join(_KEYS)}")
    question = _text(record.get("question"), "question", MAX_QUESTION)
    points = _texts(record.get("points"), "points", MAX_POINT)
    if "answers" in record and "answer" in record:
        raise ValueError("both 'answers' and 'answer'; give one of them")
    answers = record.get("answers", [record["answer"]] if "answer" in record else [" ".join(points)])
    name = record.get("id", number)
    if not isinstance(name, str | int) or isinstance(name, bool) or not str(name).strip():
        raise ValueError(f"id is {name!a}, neither text nor number")
    split = record.get("split", "")
    if split not in ("", *SPLITS):
        raise ValueError(f"split is {split!a}, neither train nor test")
    return Task(str(name), question, points, _texts(answers, "answers", MAX_ANSWER)), split


def _text(value: Any, key: str, limit: int) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise ValueError(f"'{key}' is no text of 1 to {limit} characters")
    return value.strip()


def _texts(value: Any, key: str, limit: int) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_POINTS:
        raise ValueError(f"'{key}' is no list of 1 to {MAX_POINTS} texts")
    return tuple(_text(item, key, limit) for item in value)


def _splits(given: Mapping[str, str], test_share: float) -> dict[str, tuple[str, ...]]:
    """Split by what is given; draw ``test_share`` of those without. A file of one question is both sets."""
    free = [name for name, split in given.items() if not split]
    drawn = set(shuffled_ids(free, SPLIT_SEED)[: round(test_share * len(free))])
    test = [name for name, split in given.items() if split == "test" or name in drawn]
    train = [name for name in given if name not in set(test)]
    return {"train": tuple(train or test), "test": tuple(test or train)}


SEED = "long_form_qa-2026"
SIZES = {"train": 1000, "test": 200}
STYLES = ("paper", "compact")
_TASK_ID = re.compile(r"almanac/(train|test)/(\d{4})")


def task_ids(split: str, options: LongFormQAOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of one's own questions, or of the almanac.

    Raises:
        InputError: another split, or files that cannot be used.
    """
    own = own_questions(options)
    return numbered_ids("almanac", split, SIZES) if own is None else list(own.splits[split])


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
        raise unknown_task("long_form_qa", task_id, numbered_ids("almanac", "test", SIZES), "almanac/<split>/<number>")
    return _drawn()[match[1]][int(match[2])]


@lru_cache(maxsize=1)
def _drawn() -> dict[str, list[tuple[Wish, ...]]]:
    """Draw questions until there are enough that ask for different things; the first are the test's."""
    found: dict[frozenset[Wish], tuple[Wish, ...]] = {}
    for number in itertools.count():
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
