"""The tasks of environments: splits that depend on ids alone, so that every machine has the same, and tables of tasks.

No split depends on the order of a directory or on a library's random generator. ``tests/envs/task_digests.json`` has
hashes of the tasks of the built-in environments.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from rl_agents.data.row_cache import KeptRow, KeptRows, keep
from rl_agents.data.tables import Row, Table, object_of, open_table
from rl_agents.errors import InputError, nearest, unknown

TaskSets = Mapping[str, tuple[str, ...]]


def uniform_draw(name: str, seed: str) -> float:
    """Return a number in [0, 1) from ``sha256(seed + "/" + name)``: random, but the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:6]) / 2**48


def shuffled_ids(ids: Iterable[str], seed: str) -> list[str]:
    """Return the ids in the order of `uniform_draw`."""
    return sorted(ids, key=lambda name: uniform_draw(name, seed))


def held_out(ids: Sequence[str], seed: str, tests: int = 0) -> dict[str, tuple[str, ...]]:
    """Split ids: ``tests`` of them, or else a tenth, from 1 to 500, are tests. A single id is in both."""
    drawn = set(shuffled_ids(ids, seed)[: tests or min(max(round(len(ids) * 0.1), 1), 500)])
    train = tuple(name for name in ids if name not in drawn)
    return {"train": train or tuple(ids), "test": tuple(name for name in ids if name in drawn)}


def without_tests(train: Sequence[str], test: Sequence[str], content: Callable[[str], Hashable]) -> tuple[str, ...]:
    """Return the training ids whose tasks are not test tasks, too.

    Args:
        content: returns what makes up a task; equal for equal tasks.

    Raises:
        InputError: none is left.
    """
    tests = set(map(content, test))
    left = tuple(name for name in train if content(name) not in tests)
    if not left:
        raise InputError(f"all {len(train)} training tasks of this size are test tasks, too: choose another size")
    return left


def stored_words(module: str, name: str) -> Any:
    """Return the content of the JSON file ``name`` next to a module (its ``__file__``)."""
    return json.loads(Path(module).with_name(name).read_text(encoding="utf-8"))


#: Number of different tasks of a setting below which some are drawn for both splits.
FEW = 10**9


def drawn_ids(
    setting: str, split: str, sizes: Mapping[str, int], different: int, content: Callable[[str], Hashable]
) -> list[str]:
    """Return `numbered_ids` of tasks drawn from ``different`` ones; ``train`` lacks those that are test tasks, too."""
    ids = numbered_ids(setting, split, sizes)
    if split == "test" or different > FEW:
        return ids
    return list(without_tests(ids, numbered_ids(setting, "test", sizes), content))


def numbered_ids(setting: str, split: str, sizes: Mapping[str, int]) -> list[str]:
    """Return ``<setting>/<split>/0000`` and following, as many as the split has tasks."""
    return [f"{setting}/{split}/{number:04d}" for number in range(sizes[split])]


def unknown_task(env: str, task_id: str, tasks: Iterable[str], form: str) -> InputError:
    """Return the error for an unknown task id, with the nearest one, else with the ``form`` of an id."""
    close = difflib.get_close_matches(task_id, list(tasks), n=1, cutoff=0.5)
    return unknown(f"{env} task", task_id, close or [form])


@dataclass(frozen=True)
class TableTasks:
    """Tasks from tables, and their two task sets.

    Attributes:
        kept: of each table, the tasks as JSON values, by id.
    """

    env: str
    kept: tuple[KeptRows, ...]
    splits: TaskSets

    def ids(self, split: str) -> tuple[str, ...]:
        return self.splits[split]

    def find(self, task_id: str) -> Any:
        """Return the JSON value of a task.

        Raises:
            InputError: unknown id; the message has the nearest one.
        """
        kept = next((kept for kept in self.kept if task_id in kept), None)
        if kept is None:
            ids = [*self.splits["train"][:5000], *self.splits["test"][:5000]]
            raise unknown_task(self.env, task_id[:80], ids, ids[0])
        return kept.get(task_id)


SPLIT_SEED = "blackbox-2026"
SPLITS = ("train", "test")


def table_tasks(env: str, name: str, columns: Mapping[str, str]) -> TableTasks:
    """Read a table of tasks, once, and again after changes; a task is its row, unchanged.

    ``id`` may be absent (then it is the row's number, in a table of several files after the file's name), and so may
    ``split``: if no row has one, a tenth of the tasks is for tests.

    Raises:
        InputError: an invalid row; the message names its place.
    """
    table = open_table(name, columns, key="env.columns")
    return read_tasks(env, table, table.version())


@lru_cache(maxsize=4)  # every environment needs them
def read_tasks(
    env: str,
    table: Table,
    version: str,
    read: Callable[[Row, int], KeptRow] | None = None,
    split: Callable[[Mapping[str, str]], TaskSets] | None = None,
    noun: str = "task",
) -> TableTasks:
    """Return the tasks of a table.

    Args:
        version: changes when the entries change.
        read: row and its place from 1 -> entry, or `ValueError`; by default the whole row.
        split: split of every id, empty if not given -> the two sets.
        noun: name of a task in messages.
    """
    rows = keep(table.name, f"{noun}s/{version}", lambda: _entries(table, read or partial(_entry, table), noun), noun)
    if not (given := dict(rows.splits())):
        raise InputError(f"{table.name}: no {noun}s in it")
    return TableTasks(env, (rows,), (split or _as_given)(given))


def _as_given(given: Mapping[str, str]) -> TaskSets:
    named = {part: tuple(name for name, split in given.items() if (split or "train") == part) for part in SPLITS}
    return named if any(given.values()) else held_out(tuple(given), SPLIT_SEED)


def _entries(table: Table, read: Callable[[Row, int], KeptRow], noun: str) -> Iterator[KeptRow]:
    seen: set[str] = set()
    for count, row in enumerate(table, start=1):
        try:
            entry = read(row, count)
            if entry[0] in seen:
                raise ValueError(f"the {noun} id {entry[0]!a} occurs twice")
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from None
        seen.add(entry[0])
        yield entry


def _entry(table: Table, row: Row, count: int) -> KeptRow:
    record, file = object_of(row.record(), "a task"), f"{row.path.stem}-" if len(table.files) > 1 else ""
    task_id = record.get("id", f"{file}{row.kind}-{row.number}")
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        task_id = str(task_id)
    if not isinstance(task_id, str) or not task_id:
        raise ValueError(f"id is {task_id!a}, not a text")
    if record.get("split") not in (None, *SPLITS):
        raise ValueError(f"split is {record['split']!a}: {nearest(str(record['split']), SPLITS)}")
    return task_id, str(row.value.get("split") or ""), row.value  # with its nulls, which an agent may expect
