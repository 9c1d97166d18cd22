"""The tasks of long_form_qa and their documents: the generated almanac, or the user's own files.

No two questions of the almanac ask for the same facts. The
almanac has three articles about each of 48 invented towns. A fact is a pure function of town and aspect (sha256). An
article states two facts and mentions another town. A fact is a sentence, or for small models three words: ``velmora
founder tarn``.

A table of questions has ``question``, ``points`` (sentences that an answer must state and that name their subject),
``answers`` or ``answer`` (whole reference answers; by default the points in one text), ``id`` (by default the place)
and ``split`` (by default drawn by hash).
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import Any

from pydantic import TypeAdapter

from rl_agents.data.row_cache import KeptRow
from rl_agents.data.tables import Row, object_of, open_table, text_of
from rl_agents.envs.long_form_qa import LongFormQAOptions
from rl_agents.envs.task_sets import (
    SPLITS,
    TableTasks,
    numbered_ids,
    read_tasks,
    shuffled_ids,
    stored_words,
    unknown_task,
)
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore

ALMANAC_SEED = "almanac-2026"
_STORED = stored_words(__file__, "almanac.json")
TOWNS = tuple(first + last for first, last in product(_STORED["beginnings"], _STORED["endings"]))


@dataclass(frozen=True, slots=True)
class Aspect:
    """A property of towns.

    Attributes:
        name: one word, for the compact rendering.
        question, statement: with ``{town}`` and, in the statement, ``{value}``.
        values: possible values; see `value_word` for the compact rendering.
    """

    name: str
    question: str
    statement: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Article:
    """An article about each town; ``aside`` mentions another one."""

    name: str
    title: str
    aside: str
    aspects: tuple[Aspect, ...]


ARTICLES = TypeAdapter(tuple[Article, ...]).validate_python(_STORED["articles"])
ASPECTS = tuple(aspect for article in ARTICLES for aspect in article.aspects)


@dataclass(frozen=True, slots=True)
class Wish:
    """One fact that a question asks for."""

    town: str
    aspect: Aspect

    @property
    def value(self) -> str:
        return _value(self.town, self.aspect.name)

    @property
    def question(self) -> str:
        return self.aspect.question.format(town=self.town)

    @property
    def point(self) -> str:
        return self.aspect.statement.format(town=self.town, value=self.value)

    @property
    def words(self) -> tuple[str, str, str]:
        """Town, aspect and value in the compact rendering."""
        return self.town.lower(), self.aspect.name, value_word(self.aspect, self.value)


@cache
def _value(town: str, aspect: str) -> str:
    values = next(a.values for a in ASPECTS if a.name == aspect)
    return values[int(hashlib.sha256(f"{ALMANAC_SEED}/{town}/{aspect}".encode()).hexdigest(), 16) % len(values)]


def value_word(aspect: Aspect, value: str) -> str:
    """Return the word for a value: a family name, the name of a fair, or the value itself."""
    parts = value.lower().split()
    return parts[0] if aspect.name == "fair" else parts[-1]


def passages(style: str) -> Iterator[Passage]:
    """Yield all articles, in the style ``paper`` (sentences) or ``compact`` (three words per fact, no title)."""
    for town in TOWNS:
        for article in ARTICLES:
            name, wishes = f"{town}/{article.name}", [Wish(town, aspect) for aspect in article.aspects]
            if style == "compact":
                yield Passage(name, "", compact_text(wishes))
                continue
            other = shuffled_ids((t for t in TOWNS if t != town), f"{ALMANAC_SEED}/{name}")[0]
            text = " ".join([*(wish.point for wish in wishes), article.aside.format(other=other)])
            yield Passage(name, article.title.format(town=town), text)


def compact_text(wishes: Sequence[Wish]) -> str:
    return " ".join(" ".join([*wish.words, "."]) for wish in wishes)


def draw_wishes(seed: str) -> tuple[Wish, ...]:
    """Draw two to four different facts about one or two towns, town by town."""
    digest = hashlib.sha256(seed.encode()).digest()
    towns = shuffled_ids(TOWNS, seed)[: 1 + digest[0] % 2]
    pairs = {f"{town}/{aspect.name}": Wish(town, aspect) for town in towns for aspect in ASPECTS}
    chosen = shuffled_ids(pairs, f"{seed}/wishes")[: 2 + digest[1] % 3]
    return tuple(sorted((pairs[name] for name in chosen), key=lambda wish: towns.index(wish.town)))


SPLIT_SEED = "long_form_qa-2026"
TEST_SHARE = 0.1
MAX_QUESTION, MAX_POINT, MAX_ANSWER = 8000, 2000, 20_000
MAX_POINTS = 50
_KEYS = ("question", "points", "answers", "answer", "id", "split")


@dataclass(frozen=True, slots=True)
class Task:
    """A question, the sentences that an answer must state, and whole reference answers."""

    task_id: str
    question: str
    points: tuple[str, ...]
    references: tuple[str, ...]


def load_questions(name: str, columns: Mapping[str, str] | None = None) -> TableTasks:
    try:
        table = open_table(name, columns, _KEYS, "env.columns")
        return read_tasks("long_form_qa", table, f"long_form/{table.version()}", read_question, _splits, "question")
    except InputError as error:
        raise InputError(f"env.questions={error}") from error


def read_question(row: Row, number: int) -> KeptRow:
    """Read one question; ``number`` is its place."""
    record = object_of(row.record(), "a question")
    if unexpected := next((key for key in record if key not in _KEYS), None):
        raise ValueError(f"unknown key {unexpected!a}; a question has: {', '.join(_KEYS)}")
    question = text_of(record, "question", MAX_QUESTION).strip()
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
    return str(name), split, [question, points, _texts(answers, "answers", MAX_ANSWER)]


def _texts(value: Any, key: str, limit: int) -> tuple[str, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_POINTS:
        raise ValueError(f"'{key}' is not a list of 1 to {MAX_POINTS} texts")
    return tuple(text_of({key: item}, key, limit).strip() for item in value)


def _splits(given: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Split as given, and draw `TEST_SHARE` of the others, or one if no test is given. Both sets have a single one."""
    free = [name for name, split in given.items() if not split]
    least = len(free) > 1 and "test" not in given.values()
    drawn = set(shuffled_ids(free, SPLIT_SEED)[: max(round(TEST_SHARE * len(free)), least)])
    test = [name for name, split in given.items() if split == "test" or name in drawn]
    train = [name for name in given if name not in set(test)]
    return {"train": tuple(train or test), "test": tuple(test or train)}


SIZES = {"train": 1000, "test": 200}
_TASK_ID = re.compile(r"almanac/(train|test)/(\d{4})", re.ASCII)


def task_ids(split: str, options: LongFormQAOptions) -> list[str]:
    own = own_questions(options)
    return numbered_ids("almanac", split, SIZES) if own is None else list(own.ids(split))


def own_questions(options: LongFormQAOptions) -> TableTasks | None:
    """Return the questions of the user's files; None without files."""
    if not options.documents and not options.questions:
        return None
    if not options.documents or not options.questions:
        raise InputError("env.documents and env.questions belong together: set both, or none for the almanac")
    if options.prompt == "compact":
        raise InputError("env.prompt=compact is only for the almanac; use env.prompt=paper for your documents")
    return load_questions(options.questions, options.columns)


def find_task(task_id: str, own: TableTasks | None, style: str = "paper") -> Task:
    if own is not None:
        question, points, references = own.find(task_id)
        return Task(task_id, question, tuple(points), tuple(references))
    wishes = wishes_of(task_id)
    if style == "compact":
        points = tuple(" ".join(wish.words) for wish in wishes)
        question = " ".join(f"{' '.join(wish.words[:2])} ." for wish in wishes)
        return Task(task_id, f"question : {question}", points, (compact_text(wishes),))
    points = tuple(wish.point for wish in wishes)
    return Task(task_id, " ".join(wish.question for wish in wishes), points, (" ".join(points),))


def wishes_of(task_id: str) -> tuple[Wish, ...]:
    match = _TASK_ID.fullmatch(task_id)
    if match is None or int(match[2]) >= SIZES[match[1]]:
        raise unknown_task("long_form_qa", task_id, numbered_ids("almanac", "test", SIZES), "almanac/<split>/<number>")
    return _drawn()[match[1]][int(match[2])]


@lru_cache(maxsize=1)
def _drawn() -> dict[str, list[tuple[Wish, ...]]]:
    """Draw questions until enough of them ask for different facts. The first are the test tasks."""
    found: dict[frozenset[Wish], tuple[Wish, ...]] = {}
    for number in itertools.count():
        wishes = draw_wishes(f"{SPLIT_SEED}/{number}")
        found.setdefault(frozenset(wishes), wishes)
        if len(found) == sum(SIZES.values()):
            break
    questions = list(found.values())
    return {"test": questions[: SIZES["test"]], "train": questions[SIZES["test"] :]}


@lru_cache(maxsize=2)  # of each style
def almanac_store(style: str) -> PassageStore:
    return PassageStore.build(passages(style))
