"""The tasks of blackbox: from a table, or those of another environment.

    {"id": "q1", "question": "In which city does Ada live?", "split": "test"}

A row of any table (`rl_agents.data.tables`), which the agent receives unchanged. ``id`` may be absent (then it is the
row's number, in a table of several files after the file's name), and so may ``split``: if no row has one, a tenth of
the tasks is for tests. For a task of another environment the agent receives ``id``, ``env`` (its name), ``options`` and
``max_turns``, the arguments of `rl_agents.envs.base.make_env`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.hub import PREFIX
from rl_agents.data.row_cache import Entry, keep
from rl_agents.data.tables import Row, Table, object_of, open_table, table_files
from rl_agents.envs import base
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.panels import TableTasks, held_out
from rl_agents.errors import InputError, nearest, similar

SPLIT_SEED = "blackbox-2026"
SPLITS = ("train", "test")
NEEDED = (
    "environment blackbox needs an agent: env.agent_command='python my_agent.py {task_id}', "
    "or env.agent=module:function, a coroutine"
)


def base_environment(options: Mapping[str, Any]) -> str:
    """Return the environment whose tasks are used, or ``blackbox`` for those of a file.

    Raises:
        InputError: no agent, two agents, no tasks, or neither a file nor an environment of that name.
    """
    agents = [name for name in ("agent_command", "agent") if options.get(name)]
    if not agents:
        raise InputError(NEEDED)
    if len(agents) == 2:
        raise InputError("environment blackbox: set env.agent_command or env.agent, not both")
    tasks = str(options.get("tasks") or "")
    if not tasks:
        raise InputError("environment blackbox needs env.tasks: a JSONL file, or an environment such as guess_numbers")
    if tasks == "blackbox":
        raise InputError("env.tasks=blackbox: name a JSONL file or another environment")
    if base.is_environment(tasks):
        return tasks
    try:
        table_files(tasks)
    except InputError as error:
        if tasks.startswith(PREFIX) or Path(tasks).expanduser().exists():
            raise
        hint = similar(tasks, base.ENVIRONMENTS)
        problem = f"{tasks}: no such file, and as an environment: {hint}" if hint else error
        raise InputError(f"env.tasks={problem}") from None
    return "blackbox"


def task_ids(split: str, options: BlackboxOptions) -> list[str]:
    """Return the ids of ``train`` or ``test``.

    Raises:
        InputError: no agent, or tasks that cannot be used.
    """
    if base_environment(base.plain_options(options)) != "blackbox":
        return base.task_ids(options.tasks, split, options.task_options)
    return list(load_tasks(options).ids(split))


def task_payload(task_id: str, options: BlackboxOptions, max_turns: int) -> dict[str, Any]:
    """Return the task as the agent receives it.

    Raises:
        InputError: there is no such task in the file.
    """
    if base_environment(base.plain_options(options)) != "blackbox":
        return {"id": task_id, "env": options.tasks, "options": dict(options.task_options), "max_turns": max_turns}
    return dict(load_tasks(options).find(task_id))


def answer_words(options: BlackboxOptions) -> str:
    """Return the ``answer_instruction`` of the environment whose tasks are used; empty if it has none."""
    name = base_environment(base.plain_options(options))
    if name == "blackbox":
        return ""
    env = base.make_env(name, options.task_options)
    words = getattr(env, "answer_instruction", "")
    env.close()
    return words if isinstance(words, str) else ""


def load_tasks(options: BlackboxOptions) -> TableTasks:
    """Read a table of tasks, once, and again after changes.

    Raises:
        InputError: an invalid row; the message names its place.
    """
    table = open_table(options.tasks, options.columns, key="env.columns")
    return _loaded(table, table.version())


@lru_cache(maxsize=4)  # every environment needs them
def _loaded(table: Table, version: str) -> TableTasks:
    payloads = keep(table.name, f"blackbox/{version}", lambda: _entries(table))
    if not len(payloads):
        raise InputError(f"{table.name}: no tasks in it")
    given = dict(payloads.splits())
    named = {part: tuple(n for n, split in given.items() if (split or "train") == part) for part in SPLITS}
    return TableTasks("blackbox", (payloads,), named if any(given.values()) else held_out(tuple(given), SPLIT_SEED))


def _entries(table: Table) -> Iterator[Entry]:
    for row in table:
        try:
            payload = _payload(row, f"{row.path.stem}-" if len(table.files) > 1 else "")
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from None
        yield payload["id"], str(payload.get("split") or ""), payload


def _payload(row: Row, file: str) -> dict[str, Any]:
    record = object_of(row.record(), "a task")
    task_id = record.get("id", f"{file}{row.kind}-{row.number}")
    payload = {**row.value, "id": task_id}  # with its nulls, which the agent may expect
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        task_id = payload["id"] = str(task_id)
    if not isinstance(task_id, str) or not task_id:
        raise ValueError(f"id is {task_id!a}, not a text")
    if payload.get("split") not in (None, *SPLITS):
        raise ValueError(f"split is {payload['split']!a}: {nearest(str(payload['split']), SPLITS)}")
    return payload
