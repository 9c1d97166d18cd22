"""Environments and players created with keyword arguments."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rl_agents.envs.base import env_spec, make_env, named_env, read_env_options


def with_keywords(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of an options object of environment ``name`` so that it takes keywords."""
    takes = inspect.signature(function).parameters

    def call(*args: Any, **keywords: Any) -> Any:
        more = {key: keywords.pop(key) for key in ("max_turns",) if key in takes and key in keywords}
        return function(*args, options=read_env_options(env_spec(name), keywords), **more)

    return call


def outcome(name: str, task_id: str, dialogue: Sequence[tuple[str, str]], **options: Any) -> dict[str, Any]:
    """Replay the actions of a dialogue; return the last ``info``."""
    env = make_env(name, options)
    _, info = env.reset(options={"task_id": task_id})
    for _, action in dialogue:
        info = env.step(action)[4]
    return info


def starts(name: str, task: str, **fixed: Any) -> Callable[..., Any]:
    """Return a function that starts a task (default: ``task``) in an environment with ``fixed`` and given options."""

    def started(task_id: str = task, **options: Any) -> Any:
        env = named_env(name, **{**fixed, **options})
        env.reset(options={"task_id": task_id})
        return env

    return started
