"""The tasks of blackbox: from a file, or those of another environment.

    {"id": "q1", "question": "In which city does Ada live?", "split": "test"}

One JSON object a line; the agent is given it as it stands. ``id`` may be absent (then it is the line's number), and so
may ``split``: where no line has one, a tenth of the tasks is for tests. Of another environment the agent is given
``id``, ``env`` (its name), ``options`` and ``max_turns``: what `rl_agents.envs.base.make_env` takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.envs import base
from rl_agents.envs.blackbox.spec import BlackboxOptions
from rl_agents.envs.panels import check_split, shuffled_ids, unknown_task
from rl_agents.errors import InputError, nearest
from rl_agents.retrieval.passages import fingerprint

SPLIT_SEED = "blackbox-2026"
SPLITS = ("train", "test")
#: Of a file without ``split`` this share of the tasks, at least one and at most `MAX_TESTS`, is for tests.
TEST_SHARE, MAX_TESTS = 0.1, 500
NEEDED = (
    "environment blackbox needs an agent: env.agent_command='python my_agent.py {task_id}', "
    "or env.agent=module:function, a coroutine"
)


@dataclass(frozen=True)
class TaskSet:
    """What agents are given, by task id, and the two task sets."""

    payloads: Mapping[str, Mapping[str, Any]]
    splits: Mapping[str, tuple[str, ...]]


def base_environment(options: Mapping[str, Any]) -> str:
    """Return the environment whose tasks are taken, or ``blackbox`` for those of a file.

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
    if not Path(tasks).expanduser().is_file():
        known = nearest(tasks, base.ENVIRONMENTS)
        hint = f", and as an environment: {known}" if known.startswith("did you mean") else ""
        raise InputError(f"env.tasks={tasks}: no such file{hint}")
    return "blackbox"


def task_ids(split: str, options: BlackboxOptions) -> list[str]:
    """Return the ids of ``train`` or ``test``.

    Raises:
        InputError: another split, no agent, or tasks that cannot be used.
    """
    if base_environment(base.plain_options(options)) != "blackbox":
        return base.task_ids(options.tasks, split, options.task_options)
    found = load_tasks(options.tasks)
    check_split(split, found.splits)
    return list(found.splits[split])


def task_payload(task_id: str, options: BlackboxOptions, max_turns: int) -> dict[str, Any]:
    """Return what the agent is given.

    Raises:
        InputError: there is no such task in the file.
    """
    if base_environment(base.plain_options(options)) != "blackbox":
        return {"id": task_id, "env": options.tasks, "options": dict(options.task_options), "max_turns": max_turns}
    payloads = load_tasks(options.tasks).payloads
    if task_id not in payloads:
        raise unknown_task("blackbox", task_id[:80], list(payloads)[:5000], next(iter(payloads)))
    return dict(payloads[task_id])


def answer_words(options: BlackboxOptions) -> str:
    """Return how the environment whose tasks are taken tells an agent to answer now; empty where it does not."""
    name = base_environment(base.plain_options(options))
    if name == "blackbox":
        return ""
    env = base.make_env(name, options.task_options)
    words = getattr(env, "answer_instruction", "")
    env.close()
    return words if isinstance(words, str) else ""


def load_tasks(name: str) -> TaskSet:
    """Read a file of tasks, once per process, and again when it changes.

    Raises:
        InputError: a line that is wrong; its number is named.
    """
    path = Path(name).expanduser()
    return _loaded(path, fingerprint((path,)))


@lru_cache(maxsize=4)  # every environment asks
def _loaded(path: Path, version: str) -> TaskSet:
    payloads: dict[str, Mapping[str, Any]] = {}
    splits: dict[str, str] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text: {error}") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            payload = _payload(line, number, f"{path}:{number}")
            if payload["id"] in payloads:
                raise InputError(f"{path}:{number}: the task id {payload['id']!a} occurs twice")
            payloads[payload["id"]] = payload
            splits[payload["id"]] = str(payload.get("split") or "")
    if not payloads:
        raise InputError(f"{path}: no tasks in it")
    return TaskSet(payloads, _split(splits))


def _payload(line: str, number: int, place: str) -> dict[str, Any]:
    try:
        payload = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise InputError(f"{place}: {type(payload).__name__}, not an object")
    task_id = payload.setdefault("id", f"line-{number}")
    if isinstance(task_id, int) and not isinstance(task_id, bool):
        task_id = payload["id"] = str(task_id)
    if not isinstance(task_id, str) or not task_id:
        raise InputError(f"{place}: id is {task_id!a}, not a text")
    if payload.get("split", "train") not in SPLITS:
        raise InputError(f"{place}: split is {payload['split']!a}: {nearest(str(payload['split']), SPLITS)}")
    return payload


def _split(splits: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of both sets in the file's order. A single task without ``split`` is both."""
    if not any(splits.values()):
        count = min(max(round(len(splits) * TEST_SHARE), 1), MAX_TESTS)
        test = set(shuffled_ids(splits, SPLIT_SEED)[:count])
        train = tuple(name for name in splits if name not in test)
        return {"train": train or tuple(splits), "test": tuple(name for name in splits if name in test)}
    return {part: tuple(n for n, split in splits.items() if (split or "train") == part) for part in SPLITS}
