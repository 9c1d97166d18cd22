"""The tasks of blackbox: from a table, or those of another environment.

The agent receives a row of the table (`rl_agents.envs.task_sets.table_tasks`) with its ``id``. For a task of another
environment it receives ``id``, ``env`` (its name), ``options`` and ``max_turns``, the arguments of
`rl_agents.envs.base.make_env`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_agents.data.hub import PREFIX
from rl_agents.data.tables import table_files
from rl_agents.envs import base
from rl_agents.envs.blackbox import BlackboxOptions
from rl_agents.envs.task_sets import TableTasks, table_tasks
from rl_agents.errors import InputError, similar

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
    return {**load_tasks(options).find(task_id), "id": task_id}


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
    """Read the table of tasks; raises as `table_tasks`."""
    return table_tasks("blackbox", options.tasks, options.columns)
