"""Traces of scripted players: of the built-in help desk, or of any environment that has a demonstrator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

from rl_agents.envs.base import env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.envs.pivot.desk import desk_record
from rl_agents.rollout.demonstrations import solves


def demonstrated_records(
    env: str, options: Mapping[str, Any], traces: int, seed: int, mediocre: bool = False, max_turns: int = 0
) -> Iterator[dict[str, Any]]:
    """Yield records of OpenAI's chat form, one per episode.

    The reward of an episode is 1 where its actions, played again, solve the task; `pivot extract` keeps those.

    Args:
        env: environment; ``pivot`` is the help desk.
        options: the environment's own.
        mediocre: the demonstrator whom the starter model imitates plays, even where there is an expert.
        max_turns: of an episode; 0 takes the environment's.

    Raises:
        InputError: the environment has no demonstrator.
    """
    if env == "pivot":
        yield from (desk_record(number, seed) for number in range(traces))
        return
    starter, tasks = starter_spec(env), task_ids(env, "train", options)
    demonstrate = starter.expert if starter.expert and not mediocre else starter.demonstrate
    world, read = make_env(env, options, max_turns), read_env_options(env_spec(env), options)
    for number in range(traces):
        rng = random.Random(f"demo-traces/{seed}/{number}")
        task = rng.choice(tasks)
        dialogue = demonstrate(task, rng, read, max_turns)
        messages = [
            {"role": role, "content": text}
            for observation, action in dialogue
            for role, text in (("user", observation), ("assistant", action))
        ]
        solved = solves(world, task, [action for _, action in dialogue])
        yield {"id": f"{task}#{number}", "reward": float(solved), "messages": messages}


def has_expert(env: str) -> bool:
    """Whether an environment has a scripted player without bad habits."""
    return env == "pivot" or starter_spec(env).expert is not None
