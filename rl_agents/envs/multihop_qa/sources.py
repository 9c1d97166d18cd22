"""Where questions and passages come from: worlds of our own, or files; found by name.

| ``env.questions`` | what |
|---|---|
| ``generated`` | worlds of 308 passages and 20 questions in sentences: 80 to train in, 20 to test in |
| ``small`` | worlds of 112 passages and 10 questions in single words, for the starter model: 400 and 40 |
| a file | HotpotQA, 2WikiMultiHopQA, MuSiQue or plain questions; see `rl_agents.envs.multihop_qa.questions` |

The passages of a file's questions are one store, each passage once, as StepPO builds it (appendix B.2), unless
``env.passages`` names a corpus. Both are read once and kept in the cache of rl_agents.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

from rl_agents.cache import cache_dir
from rl_agents.envs.multihop_qa.questions import Question, read_questions
from rl_agents.envs.multihop_qa.spec import MultihopQAOptions
from rl_agents.envs.multihop_qa.world import SIZES, World, make_world
from rl_agents.envs.multihop_qa.world_questions import COUNTS, world_questions
from rl_agents.envs.panels import check_split, shuffled_ids, unknown_task
from rl_agents.errors import InputError
from rl_agents.retrieval.building import only_one
from rl_agents.retrieval.passages import Passage, PassageStore, fingerprint, open_index

SEED = "multihop_qa-2025"
#: Counts up when the questions that are kept in the cache change their form.
FORMAT = 2
SPLITS = ("train", "test")
#: Worlds of each setting.
WORLDS = {"generated": {"train": 80, "test": 20}, "small": {"train": 400, "test": 40}}
#: Of a single file this share of the questions, at most `MAX_TESTS`, is for tests.
TEST_SHARE, MAX_TESTS = 0.1, 500
_WORLD_TASK = re.compile(r"(train|test)/(\d{3})/(\d{2})")


class Place(Protocol):
    """Where a task's passages are: a few names, so that tasks, and states that hold them, can be pickled."""

    @property
    def store(self) -> PassageStore:
        """The passages."""
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """A question, and where its answer is to be found."""

    question: Question
    place: Place

    @property
    def store(self) -> PassageStore:
        """The store in which the answer is to be found."""
        return self.place.store


class Source(Protocol):
    """Tasks by id."""

    def ids(self, split: str) -> Sequence[str]:
        """Return the ids of ``train`` or ``test``."""
        ...

    def task(self, task_id: str) -> Task:
        """Return the task called ``task_id``.

        Raises:
            InputError: there is none; the message offers the nearest.
        """
        ...


@lru_cache(maxsize=8)
def find_source(options: MultihopQAOptions) -> Source:
    """Return what the keys ``env.questions``, ``env.test_questions`` and ``env.passages`` name.

    Raises:
        InputError: a file that is missing or wrong.
    """
    questions, test_questions, passages = options.questions, options.test_questions, options.passages
    if questions in SIZES:
        return Worlds(questions)
    files = [Path(name).expanduser() for name in dict.fromkeys((questions, test_questions)) if name]
    for path in files:
        if not path.is_file():
            raise InputError(f"env.questions={path}: no such file; valid: {', '.join(SIZES)}, or a file of questions")
    corpus = Path(passages).expanduser() if passages else None
    return FileQuestions(files[0], files[-1] if test_questions else None, corpus, options.max_bad_share)


@dataclass(frozen=True)
class Worlds:
    """Generated worlds of one setting, ``generated`` or ``small``; a task id reads ``test/003/11``."""

    setting: str

    def ids(self, split: str) -> list[str]:
        """See `Source.ids`."""
        check_split(split, dict.fromkeys(SPLITS, ()))
        questions = sum(COUNTS[self.setting].values())
        worlds = WORLDS[self.setting][split]
        return [f"{split}/{world:03d}/{number:02d}" for world in range(worlds) for number in range(questions)]

    def task(self, task_id: str) -> Task:
        """See `Source.task`."""
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
        """See `Place.store`."""
        return open_world(self.setting, self.name).store


@dataclass(frozen=True, slots=True)
class IndexPlace:
    """An index file in the cache."""

    path: Path

    @property
    def store(self) -> PassageStore:
        """See `Place.store`."""
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


class FileQuestions:
    """Questions of a file, or of one to train on and one to test on; a task id is the question's id.

    Args:
        test: None takes a tenth of ``train``, by sha256 of the ids; the same file twice is all train and all test.
        corpus: passages to search; None takes those that come with the questions.
        max_bad_share: see `read_questions`.

    Raises:
        InputError: a record that is wrong, an id twice, or no passages at all.
    """

    def __init__(self, train: Path, test: Path | None, corpus: Path | None, max_bad_share: float = 0.0) -> None:
        files = [train, test] if test is not None and test != train else [train]
        self._questions = {str(path): _cached_questions(path, max_bad_share) for path in files}
        self._by_id: dict[str, Question] = {}
        for path, questions in self._questions.items():
            for question in questions:
                if question.id in self._by_id:
                    raise InputError(f"{path}: the question id {question.id!a} occurs twice")
                self._by_id[question.id] = question
        self._splits = self._split(train, test)
        self._store = PassageStore.open(corpus) if corpus is not None else self._own_passages(files)
        assert self._store.path is not None, "an index in the cache"
        self._place = IndexPlace(self._store.path)
        self._own = corpus is None

    def ids(self, split: str) -> Sequence[str]:
        """See `Source.ids`."""
        check_split(split, self._splits)
        return self._splits[split]

    def task(self, task_id: str) -> Task:
        """See `Source.task`."""
        question = self._by_id.get(task_id)
        if question is None:
            raise unknown_task("multihop_qa", task_id[:80], list(self._by_id)[:5000], next(iter(self._by_id), "an id"))
        # A corpus of its own may lack what the question's file calls supporting: then nothing is known of it.
        known = self._own or all(name in self._store for name in question.supporting)
        return Task(question if known else replace(question, supporting=()), self._place)

    def _split(self, train: Path, test: Path | None) -> Mapping[str, tuple[str, ...]]:
        ids = tuple(question.id for question in self._questions[str(train)])
        if test is not None:
            return {"train": ids, "test": tuple(question.id for question in self._questions[str(test)])}
        if len(ids) < 2:
            raise InputError(f"{train}: one question cannot be split; name another file with env.test_questions")
        tests = min(max(round(len(ids) * TEST_SHARE), 1), MAX_TESTS)
        held_out = set(shuffled_ids(ids, SEED)[:tests])
        return {
            "train": tuple(name for name in ids if name not in held_out),
            "test": tuple(name for name in ids if name in held_out),
        }

    @staticmethod
    def _own_passages(files: Sequence[Path]) -> PassageStore:
        name = "-".join(path.stem for path in files)
        store = PassageStore.cached(name, f"questions/{fingerprint(files)}", lambda: _unique_passages(files))
        if not len(store):
            raise InputError(f"{files[0]}: its questions come without passages; name a corpus with env.passages")
        return store


def _unique_passages(files: Sequence[Path]) -> Iterator[tuple[Passage, float]]:
    seen: set[str] = set()
    for path in files:
        for entry, share in read_questions(path, 1.0):  # what may be left out has been looked at
            for passage in entry.passages:
                if passage.id not in seen:
                    seen.add(passage.id)
                    yield passage, share


def _cached_questions(path: Path, max_bad_share: float) -> list[Question]:
    """Read the questions of a file without their passages; a copy without them is kept, which is read in no time."""

    digest = hashlib.sha256(f"{FORMAT}/{max_bad_share:g}/{fingerprint([path])}".encode()).hexdigest()[:12]
    kept = cache_dir() / "questions" / f"{re.sub(r'[^A-Za-z0-9]+', '-', path.stem)}-{digest}.jsonl"
    if not kept.is_file():
        with only_one(kept):
            if not kept.is_file():
                unfinished = kept.with_suffix(f".{os.getpid()}")
                try:
                    with unfinished.open("w", encoding="utf-8") as file:
                        for entry, _ in read_questions(path, max_bad_share, print_line):
                            file.write(json.dumps(asdict(entry.question)) + "\n")
                    os.replace(unfinished, kept)
                finally:
                    unfinished.unlink(missing_ok=True)
    with kept.open(encoding="utf-8") as file:
        questions = [_from_kept(json.loads(line)) for line in file]
    if not questions:
        raise InputError(f"{path}: no questions there")
    return questions


def print_line(line: str) -> None:
    """Say something about the data on stderr."""
    print(f"[rl_agents] {line}", file=sys.stderr, flush=True)


def _from_kept(data: dict[str, str | list[str]]) -> Question:
    return Question(**{key: tuple(value) if isinstance(value, list) else value for key, value in data.items()})  # type: ignore[arg-type]
