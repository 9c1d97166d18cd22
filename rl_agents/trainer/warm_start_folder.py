"""Where a starter model is cached, and how it is made."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rl_agents.cache import cache_dir
from rl_agents.envs.base import starter_spec
from rl_agents.envs.spec import StarterSpec

STARTER_SEED = 0
#: Keys of imitation from a pretrained model: 96 episodes, after which it keeps to the form of the answers.
PRETRAINED = {"iterations": 3, "tasks_per_iteration": 32, "group_size": 1, "demonstrations": 96, "lr": 5e-5}


def starter_dir(env: str, iterations: int = 0, options: Mapping[str, Any] = MappingProxyType({})) -> Path:
    """Where the starter of ``env`` is cached; how it is made is part of the name.

    Args:
        iterations: of its training; 0 for the environment's own number.
        options: the environment's keys, which may choose among several starters.
    """
    starter = starter_spec(env, options)
    training = {**starter.training, **chosen_training(iterations)}
    key = json.dumps([starter.version, training, dict(starter.defaults)], sort_keys=True, default=str)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return cache_dir() / "starters" / f"{env.replace(':', '-').replace('/', '-')}-{digest}"


def chosen_training(iterations: int) -> dict[str, Any]:
    """Keys of a starter's training over its own; ``iterations`` 0: none."""
    return {"iterations": iterations} if iterations else {}


def imitation_keys(starter: StarterSpec, chosen: Mapping[str, Any], model: str = "") -> dict[str, Any]:
    """Return the keys of the run that imitates an environment's player.

    Args:
        chosen: keys that were set.
        model: a pretrained model, which takes none of the small network's lengths and learning rates.
    """
    return {**PRETRAINED, **chosen} if model else {**starter.defaults, **starter.training, **chosen}


def starter_config(env: str, options: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the config.json of the starter of ``env``, which need not be built yet."""
    starter = starter_spec(env, options)
    config: dict[str, Any] = json.loads(_config(starter.build_tokenizer, starter.build_model))
    return config


@functools.lru_cache(maxsize=64)
def _config(build_tokenizer: Callable[[], Any], build_model: Callable[[Any, int], Any]) -> str:
    """As JSON, so that every caller gets a copy; the network is built once a process."""
    return json.dumps(build_model(build_tokenizer(), STARTER_SEED).config.to_dict(), default=str)
