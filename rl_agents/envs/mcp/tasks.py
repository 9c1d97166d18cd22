"""The tasks of mcp: questions with answers from a table, in the plain form of `rl_agents.envs.questions`.

    {"id": "q1", "question": "In which city does Ada live?", "answer": "Rome"}

A row of any table (`rl_agents.data.tables`); ``answer`` (or ``answers``) may be a list of accepted
texts, and ``id`` may be absent.
"""

from __future__ import annotations

from functools import lru_cache

from rl_agents.data.tables import Table
from rl_agents.envs.mcp import McpOptions
from rl_agents.envs.questions import kept_tables, question_table
from rl_agents.envs.task_sets import TableTasks, held_out
from rl_agents.errors import InputError

SPLIT_SEED = "mcp-2026"


def task_ids(split: str, options: McpOptions) -> list[str]:
    """Return the ids of ``train`` or ``test``; raises as `load_tasks` does."""
    return list(load_tasks(options).ids(split))


def load_tasks(options: McpOptions) -> TableTasks:
    """Read the files of tasks, once per process, and again after changes.

    Without ``test_tasks`` a tenth of ``tasks`` is for tests, by sha256 of the ids. A single task is in both sets.
    """
    if not options.tasks:
        raise InputError("environment mcp needs env.tasks=FILE, a table of questions with answers")
    names = (options.tasks, options.test_tasks) if options.test_tasks else (options.tasks,)
    tables = tuple(question_table(name, options.columns) for name in names)
    return _loaded(tables, tuple(table.version() for table in tables), options.max_bad_share)


@lru_cache(maxsize=4)  # every environment needs them
def _loaded(tables: tuple[Table, ...], versions: tuple[str, ...], max_bad_share: float) -> TableTasks:
    kept = kept_tables(tables, max_bad_share, "task")
    ids = [one.ids() for one in kept]
    splits = held_out(ids[0], SPLIT_SEED) if len(ids) == 1 else dict(zip(("train", "test"), ids, strict=True))
    return TableTasks("mcp", kept, splits)
