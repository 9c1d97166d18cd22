"""The tasks of mcp: questions with answers from a file, in the plain form of multihop_qa's questions.

    {"id": "q1", "question": "In which city does Ada live?", "answer": "Rome"}

One a line in a ``.jsonl`` file, or an item of a ``.json`` list; ``answer`` (or ``answers``) may be a list of accepted
texts, and ``id`` may be absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rl_agents.envs.mcp.spec import McpOptions
from rl_agents.envs.multihop_qa.questions import Question, read_questions
from rl_agents.envs.multihop_qa.sources import print_line
from rl_agents.envs.panels import check_split, shuffled_ids, unknown_task
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import fingerprint

SPLIT_SEED = "mcp-2026"
SPLITS = ("train", "test")
#: Of a single file this share of the tasks, at least one and at most `MAX_TESTS`, is for tests.
TEST_SHARE, MAX_TESTS = 0.1, 500


@dataclass(frozen=True)
class TaskSet:
    """The tasks of a file by id, and the two task sets."""

    questions: Mapping[str, Question]
    splits: Mapping[str, tuple[str, ...]]

    def find(self, task_id: str) -> Question:
        """Return the task called ``task_id``.

        Raises:
            InputError: there is none; the message offers the nearest.
        """
        if task_id not in self.questions:
            raise unknown_task("mcp", task_id[:80], list(self.questions)[:5000], next(iter(self.questions)))
        return self.questions[task_id]


def task_ids(split: str, options: McpOptions) -> list[str]:
    """Return the ids of ``train`` or ``test``.

    Raises:
        InputError: another split, or files that cannot be used.
    """
    found = load_tasks(options)
    check_split(split, found.splits)
    return list(found.splits[split])


def load_tasks(options: McpOptions) -> TaskSet:
    """Read the files of tasks, once per process, and again when they change.

    Without ``test_tasks`` a tenth of ``tasks`` is for tests, by sha256 of the ids. A file of one task is both sets.

    Raises:
        InputError: no file, or a record that is wrong; its place is named.
    """
    if not options.tasks:
        raise InputError("environment mcp needs env.tasks=FILE, a JSONL file of questions with answers")
    paths = tuple(Path(name).expanduser() for name in (options.tasks, options.test_tasks) if name)
    return _loaded(paths, fingerprint(paths), options.max_bad_share)


@lru_cache(maxsize=4)  # every environment asks
def _loaded(paths: tuple[Path, ...], version: str, max_bad_share: float) -> TaskSet:
    questions: dict[str, Question] = {}
    ids: list[tuple[str, ...]] = []
    for path in paths:
        own = tuple(entry.question for entry, _ in read_questions(path, max_bad_share, print_line))
        if not own:
            raise InputError(f"{path}: no tasks in it")
        for question in own:
            if question.id in questions:
                raise InputError(f"{path}: the task id {question.id!a} occurs twice")
            questions[question.id] = question
        ids.append(tuple(question.id for question in own))
    if len(ids) == 2:
        return TaskSet(questions, dict(zip(SPLITS, ids, strict=True)))
    count = min(max(round(len(ids[0]) * TEST_SHARE), 1), MAX_TESTS)
    test = set(shuffled_ids(ids[0], SPLIT_SEED)[:count])
    train = tuple(name for name in ids[0] if name not in test)
    return TaskSet(questions, {"train": train or ids[0], "test": tuple(name for name in ids[0] if name in test)})
