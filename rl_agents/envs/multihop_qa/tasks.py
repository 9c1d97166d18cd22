"""The tasks of multihop_qa and the sources of questions and passages: generated worlds, or tables.

The passages of a table's questions form one store without duplicates, as in StepPO (appendix B.2), unless
``env.passages`` is a corpus. Both are read once into the cache.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from rl_agents.data.tables import Columns, Table
from rl_agents.envs.multihop_qa import MultihopQAOptions
from rl_agents.envs.multihop_qa.world import COUNTS, SIZES, World, make_world, world_questions
from rl_agents.envs.questions import Question, from_kept, kept_tables, question_table, read_questions
from rl_agents.envs.task_sets import TableTasks, held_out, unknown_task
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore, open_index

SEED = "multihop_qa-2025"
#: Worlds of each setting.
WORLDS = {"generated": {"train": 80, "test": 20}, "small": {"train": 400, "test": 40}}
_WORLD_TASK = re.compile(r"(train|test)/(\d{3})/(\d{2})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Task:
    """A question and the (setting, name) of its world or its index file, so that a task is small and can be pickled."""

    question: Question
    place: tuple[str, str] | Path

    @property
    def store(self) -> PassageStore:
        return open_index(self.place) if isinstance(self.place, Path) else open_world(*self.place).store


def find_source(options: MultihopQAOptions) -> Source:
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
    """Generated worlds of one setting, ``generated`` or ``small``; a task id is ``test/003/11``."""

    setting: str

    def ids(self, split: str) -> list[str]:
        questions = sum(COUNTS[self.setting].values())
        worlds = WORLDS[self.setting][split]
        return [f"{split}/{world:03d}/{number:02d}" for world in range(worlds) for number in range(questions)]

    def task(self, task_id: str) -> Task:
        match = _WORLD_TASK.fullmatch(task_id)
        if match is None or int(match[2]) >= WORLDS[self.setting][match[1]]:
            raise unknown_task("multihop_qa", task_id, (), "test/003/11")
        place = self.setting, f"{match[1]}/{match[2]}"
        world = open_world(*place)
        if int(match[3]) >= len(world.questions):
            raise unknown_task("multihop_qa", task_id, [q.id for q in world.questions], "test/003/11")
        return Task(world.questions[int(match[3])], place)


@dataclass(frozen=True)
class OpenWorld:
    """A world with its questions and, once it is searched, its store in memory."""

    world: World
    questions: tuple[Question, ...]

    @cached_property
    def store(self) -> PassageStore:
        return PassageStore.build(self.world.passages)


@lru_cache(maxsize=512)
def open_world(setting: str, name: str) -> OpenWorld:
    """Build a world, such as ``test/003`` of ``small``; recent ones are cached."""
    world = make_world(f"{SEED}/{setting}", name, SIZES[setting])
    return OpenWorld(world, world_questions(world, COUNTS[setting]))


class TableQuestions:
    """Questions of one table, or of a train and a test table; a task id is the question's id.

    Args:
        test: None takes a tenth of ``train``, by sha256 of the ids. If it equals ``train``, both sets have all tasks.
        corpus: table of passages; empty takes the passages of the questions.
        max_bad_share: see `read_questions`.
    """

    def __init__(self, train: Table, test: Table | None, corpus: str, max_bad_share: float = 0.0) -> None:
        tables = [train, test] if test is not None and test != train else [train]
        kept = kept_tables(tables, max_bad_share, "question")
        ids = [one.ids() for one in kept]
        if test is None and len(ids[0]) < 2:
            raise InputError(f"{train.name}: one question cannot be split; set env.test_questions to another file")
        splits = held_out(ids[0], SEED) if test is None else {"train": ids[0], "test": ids[-1]}
        self._tasks = TableTasks("multihop_qa", kept, splits)
        self.ids = self._tasks.ids
        self._store = PassageStore.open(corpus) if corpus else self._own_passages(tables)
        assert self._store.path is not None, "an index in the cache"
        self._place = self._store.path
        self._own = not corpus

    def task(self, task_id: str) -> Task:
        question = from_kept(self._tasks.find(task_id))
        # A corpus may lack passages that the file calls supporting. Then the supporting passages are unknown.
        known = self._own or all(name in self._store for name in question.supporting)
        return Task(question if known else replace(question, supporting=()), self._place)

    @staticmethod
    def _own_passages(tables: Sequence[Table]) -> PassageStore:
        name = "-".join(Path(table.name).stem for table in tables)
        version = "/".join(table.version() for table in tables)
        store = PassageStore.cached(name, f"questions/{version}", lambda: _unique_passages(tables))
        if not len(store):
            raise InputError(f"{tables[0].name}: its questions have no passages; set env.passages to a corpus")
        return store


def _unique_passages(tables: Sequence[Table]) -> Iterator[tuple[Passage, float]]:
    seen: dict[str, int] = {}
    for table in tables:
        for entry, share in read_questions(table, 1.0):  # excluded rows were checked before
            for passage in entry.passages:
                if passage.id not in seen:
                    seen[passage.id] = hash(passage)
                    yield passage, share
                elif seen[passage.id] != hash(passage):
                    remedy = "leave the ids out, or give every passage its own"
                    raise InputError(f"{table.name}: two different passages have the id {passage.id!a}; {remedy}")


#: Has ``ids(split)``, and ``task(task_id)``, which raises `InputError` for an unknown id.
Source = Worlds | TableQuestions


def task_ids(split: str, options: MultihopQAOptions) -> list[str]:
    return list(find_source(options).ids(split))
