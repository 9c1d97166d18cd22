"""Environments and their players with keyword arguments, as tests like to write them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from rl_agents.envs.base import env_spec, make_env, named_env, read_env_options


def with_keywords(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes the options of environment ``name`` as an object, called with keywords in their place."""
    takes = inspect.signature(function).parameters

    def call(*args: Any, **keywords: Any) -> Any:
        more = {key: keywords.pop(key) for key in ("max_turns", "habits") if key in takes and key in keywords}
        return function(*args, options=read_env_options(env_spec(name), keywords), **more)

    return call


def outcome(name: str, task_id: str, dialogue: Sequence[tuple[str, str]], **options: Any) -> dict[str, Any]:
    """The last ``info`` when the actions of a dialogue are played again."""
    env = make_env(name, options)
    _, info = env.reset(options={"task_id": task_id})
    for _, action in dialogue:
        info = env.step(action)[4]
    return info


def starts(name: str, task: str, **fixed: Any) -> Callable[..., Any]:
    """A function that begins a task, by default ``task``, in an environment with options, ``fixed`` ones among them."""

    def started(task_id: str = task, **options: Any) -> Any:
        env = named_env(name, **{**fixed, **options})
        env.reset(options={"task_id": task_id})
        return env

    return started
