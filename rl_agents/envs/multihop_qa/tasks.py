"""The tasks of multihop_qa, and where questions and passages come from: worlds of our own, or files; found by name.

| ``env.questions`` | what |
|---|---|
| ``generated`` | worlds of 308 passages and 20 questions in sentences: 80 to train in, 20 to test in |
| ``small`` | worlds of 112 passages and 10 questions in single words, for the warm-start model: 400 and 40 |
| a table | HotpotQA, 2WikiMultiHopQA, MuSiQue or plain questions; see `rl_agents.envs.multihop_qa.questions` |

The passages of a file's questions are one store, each passage once, as StepPO builds it (appendix B.2), unless
``env.passages`` names a corpus. Both are read once and kept in the cache of rl_agents. ``panel.json`` holds sizes and
hashes of all generated tasks.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.row_cache import KeptRows, keep
from rl_agents.data.tables import Columns, Table
from rl_agents.envs.multihop_qa import MultihopQAOptions
from rl_agents.envs.multihop_qa.questions import Question, question_table, read_questions
from rl_agents.envs.multihop_qa.world import COUNTS, SIZES, World, make_world, world_questions
from rl_agents.envs.panels import TableTasks, check_split, held_out, unknown_task
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore, open_index

SEED = "multihop_qa-2025"
#: Counts up when the questions that are kept in the cache change their form.
FORMAT = 3
SPLITS = ("train", "test")
#: Worlds of each setting.
WORLDS = {"generated": {"train": 80, "test": 20}, "small": {"train": 400, "test": 40}}
_WORLD_TASK = re.compile(r"(train|test)/(\d{3})/(\d{2})")


@dataclass(frozen=True, slots=True)
class Task:
    """A question, and where its answer is to be found: a few names, so that tasks can be pickled."""

    question: Question
    place: WorldPlace | IndexPlace

    @property
    def store(self) -> PassageStore:
        return self.place.store


def find_source(options: MultihopQAOptions) -> Source:
    """Return what the keys ``env.questions``, ``env.test_questions`` and ``env.passages`` name.

    Raises:
        InputError: a table that is missing or wrong.
    """
    if options.questions in SIZES:
        return Worlds(options.questions)
    names = (options.questions, options.test_questions, options.passages)
    return _tables(*names, tuple(options.columns.items()), options.max_bad_share)


@lru_cache(maxsize=8)
def _tables(questions: str, test_questions: str, passages: str, columns: Columns, max_bad_share: float) -> Source:
    def table(name: str) -> Table:
        try:
            return question_table(name, dict(columns))
        except InputError as error:
            raise InputError(f"env.questions={error}; valid: {', '.join(SIZES)}, or a table of questions") from None

    test = table(test_questions) if test_questions else None
    return TableQuestions(table(questions), test, passages, max_bad_share)


@dataclass(frozen=True)
class Worlds:
    """Generated worlds of one setting, ``generated`` or ``small``; a task id reads ``test/003/11``."""

    setting: str

    def ids(self, split: str) -> list[str]:
        check_split(split, dict.fromkeys(SPLITS, ()))
        questions = sum(COUNTS[self.setting].values())
        worlds = WORLDS[self.setting][split]
        return [f"{split}/{world:03d}/{number:02d}" for world in range(worlds) for number in range(questions)]

    def task(self, task_id: str) -> Task:
        match = _WORLD_TASK.fullmatch(task_id)
        if match is None or int(match[2]) >= WORLDS[self.setting][match[1]]:
            raise unknown_task("multihop_qa", task_id, (), "test/003/11")
        world = open_world(self.setting, f"{match[1]}/{match[2]}")
        if int(match[3]) >= len(world.questions):
            raise unknown_task("multihop_qa", task_id, [q.id for q in world.questions], "test/003/11")
        return Task(world.questions[int(match[3])], WorldPlace(self.setting, f"{match[1]}/{match[2]}"))


@dataclass(frozen=True, slots=True)
class WorldPlace:
    """A generated world, by its names."""

    setting: str
    name: str

    @property
    def store(self) -> PassageStore:
        return open_world(self.setting, self.name).store


@dataclass(frozen=True, slots=True)
class IndexPlace:
    path: Path

    @property
    def store(self) -> PassageStore:
        return open_index(self.path)


@dataclass(frozen=True)
class OpenWorld:
    """A world with its questions and, once it is searched, its store."""

    world: World
    questions: tuple[Question, ...]

    @cached_property
    def store(self) -> PassageStore:
        """The passages, indexed in memory."""
        return PassageStore.build(self.world.passages)


@lru_cache(maxsize=512)
def open_world(setting: str, name: str) -> OpenWorld:
    """Build a world, such as ``test/003`` of ``small``; those used last are kept."""
    world = make_world(f"{SEED}/{setting}", name, SIZES[setting])
    return OpenWorld(world, world_questions(world, COUNTS[setting]))


class TableQuestions:
    """Questions of a table, or of one to train on and one to test on; a task id is the question's id.

    Args:
        test: None takes a tenth of ``train``, by sha256 of the ids; the same table twice is all train and all test.
        corpus: passages to search; empty takes those that come with the questions.
        max_bad_share: see `read_questions`.

    Raises:
        InputError: a record that is wrong, an id twice, or no passages at all.
    """

    def __init__(self, train: Table, test: Table | None, corpus: str, max_bad_share: float = 0.0) -> None:
        tables = [train, test] if test is not None and test != train else [train]
        kept = tuple(_kept_questions(table, max_bad_share) for table in tables)
        ids = [one.ids() for one in kept]
        if twice := set(ids[0]).intersection(*ids[1:]) if len(ids) > 1 else set():
            raise InputError(f"{tables[1].name}: the question id {min(twice)!a} occurs twice")
        splits = _split(train.name, ids[0]) if test is None else {"train": ids[0], "test": ids[-1]}
        self._tasks = TableTasks("multihop_qa", kept, splits)
        self.ids = self._tasks.ids
        self._store = PassageStore.open(corpus) if corpus else self._own_passages(tables)
        assert self._store.path is not None, "an index in the cache"
        self._place = IndexPlace(self._store.path)
        self._own = not corpus

    def task(self, task_id: str) -> Task:
        question = from_kept(self._tasks.find(task_id))
        # A corpus of its own may lack what the question's file calls supporting: then nothing is known of it.
        known = self._own or all(name in self._store for name in question.supporting)
        return Task(question if known else replace(question, supporting=()), self._place)

    @staticmethod
    def _own_passages(tables: Sequence[Table]) -> PassageStore:
        name = "-".join(Path(table.name).stem for table in tables)
        version = "/".join(table.version() for table in tables)
        store = PassageStore.cached(name, f"questions/{version}", lambda: _unique_passages(tables))
        if not len(store):
            raise InputError(f"{tables[0].name}: its questions come without passages; name a corpus with env.passages")
        return store


def _split(name: str, ids: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    if len(ids) < 2:
        raise InputError(f"{name}: one question cannot be split; name another file with env.test_questions")
    return held_out(ids, SEED)


def _unique_passages(tables: Sequence[Table]) -> Iterator[tuple[Passage, float]]:
    seen: set[str] = set()
    for table in tables:
        for entry, share in read_questions(table, 1.0):  # what may be excluded has been looked at
            for passage in entry.passages:
                if passage.id not in seen:
                    seen.add(passage.id)
                    yield passage, share


def _kept_questions(table: Table, max_bad_share: float) -> KeptRows:
    """Keep the questions of a table without their passages."""
    version = f"questions/{FORMAT}/{max_bad_share:g}/{table.version()}"
    kept = keep(table.name, version, lambda: kept_entries(table, max_bad_share), "question")
    if not len(kept):
        raise InputError(f"{table.name}: no questions there")
    return kept


def kept_entries(table: Table, max_bad_share: float) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the questions of a table as `rl_agents.data.row_cache` takes them."""
    for entry, _ in read_questions(table, max_bad_share, lambda line: print(f"[rl_agents] {line}", file=sys.stderr)):
        yield entry.question.id, "", asdict(entry.question)


def from_kept(data: Mapping[str, Any]) -> Question:
    """Return the question that `kept_entries` wrote."""
    plan = tuple(tuple(step) for step in data["plan"])
    lists = {name: tuple(data[name]) for name in ("answers", "supporting")}
    return Question(**{**data, **lists, "plan": plan})


#: ``ids(split)``, and ``task(task_id)``, which raises `InputError` with the nearest for an unknown one.
Source = Worlds | TableQuestions


def task_ids(split: str, options: MultihopQAOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of the source that the options name."""
    return list(find_source(options).ids(split))
