"""Environments of the library verifiers (0.3 classic, 0.4 v1), whose loops call the policy through the gateway.

They run in the user's interpreter (`verifiers_child`), which also tells their rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from rl_agents.envs.blackbox.agents import hosted_agent
from rl_agents.envs.blackbox.env import BlackboxEnv
from rl_agents.envs.gymnasium_adapter import named_player
from rl_agents.envs.task_sets import held_out
from rl_agents.envs.verifiers import PAGE, SPEC, VerifiersOptions
from rl_agents.errors import InputError, similar_file
from rl_agents.gateway.agent_interpreter import HostedAgent

HELPER = Path(__file__).with_name("verifiers_child.py")
SPLIT_SEED = "verifiers-2026"
#: Seconds to load an environment and read its rows.
LIST_S = 600.0


class VerifiersEnv(BlackboxEnv):
    entry = SPEC


make = VerifiersEnv
starter_of = partial(named_player, SPEC)


def load_agent(options: VerifiersOptions) -> HostedAgent:
    """Return the agent that plays rows. Raises `InputError`: keys are missing, or there is no such program or file."""
    if not options.id or not options.agent_python:
        missing = "env.agent_python=PYTHON, one that has verifiers" if options.id else "env.id=NAME or env.id=FILE.py"
        raise InputError(f"environment verifiers needs {missing} ({PAGE})")
    file = Path(options.id).expanduser()
    if file.suffix == ".py" and not file.is_file():
        raise InputError(f"env.id={options.id}: no such file; {similar_file(file)}".rstrip("; "))
    return hosted_agent(f"{HELPER}:agent", options.agent_python)


def environment_of(options: VerifiersOptions) -> dict[str, Any]:
    name = str(Path(options.id).expanduser().resolve()) if options.id.endswith(".py") else options.id
    return {"id": name, "args": options.args, "agent": options.agent, "limit": options.limit}


def task_payload(task_id: str, options: VerifiersOptions, max_turns: int) -> dict[str, Any]:
    """Return the task as the agent receives it."""
    keys = {"success_reward": options.success_reward, "concurrency": options.agent_concurrency}
    return {"id": task_id, "environment": environment_of(options), **keys}


def task_ids(split: str, options: VerifiersOptions) -> list[str]:
    """Return ``train/0`` or ``test/0`` and so on, the data set and the row.

    Without evaluation rows of its own, a tenth of an environment's rows are tests. Rows that are tests, too, are not
    trained on.

    Raises:
        InputError: the environment cannot be loaded.
    """
    agent = load_agent(options)
    rows = rows_of(agent, options.id, json.dumps(environment_of(options), sort_keys=True))
    given = {part: tuple(name for name in rows if name.startswith(part)) for part in ("train", "test")}
    if not given["test"] or {rows[name] for name in given["train"]} <= {rows[name] for name in given["test"]}:
        given = held_out(given["train"] or given["test"], SPLIT_SEED)
    tests = {rows[name] for name in given["test"]}
    if split == "test":
        return list(given["test"])
    return [name for name in given["train"] if rows[name] not in tests] or list(given["train"])


@lru_cache(maxsize=8)
def rows_of(agent: HostedAgent, name: str, environment: str) -> Mapping[str, str]:
    """Return the row's digest for each task id."""
    try:
        rows: dict[str, str] = agent.ask({"environment": json.loads(environment)}, LIST_S)
    except InputError as error:
        raise InputError(f"env.id={name}: {error}") from error
    return rows
