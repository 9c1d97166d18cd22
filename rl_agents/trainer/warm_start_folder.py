"""Cache folder and training keys of warm-start models."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rl_agents.cache import cache_dir
from rl_agents.config import Settings
from rl_agents.envs.base import starter_spec
from rl_agents.envs.spec import StarterSpec

STARTER_SEED = 0
#: Keys of imitation from a pretrained model: after 96 episodes it follows the answer format.
PRETRAINED = {"iterations": 3, "tasks_per_iteration": 32, "group_size": 1, "demonstrations": 96, "lr": 5e-5}


def starter_dir(env: str, iterations: int = 0, options: Mapping[str, Any] = MappingProxyType({})) -> Path:
    """Return the cache folder of the warm-start model of ``env``; its name includes a hash of the training.

    Args:
        iterations: number of training iterations; 0 for the environment's default.
        options: the environment's keys, which may select one of several models.
    """
    return starter_folder(env, starter_spec(env, options), iterations)


def starter_folder(env: str, starter: StarterSpec, iterations: int = 0) -> Path:
    """See `starter_dir`."""
    training = {**starter.training, **chosen_training(iterations)}
    key = json.dumps([starter.version, training, dict(starter.defaults)], sort_keys=True, default=str)
    digest = hashlib.sha256(key.encode()).hexdigest()[:8]
    return cache_dir() / "starters" / f"{re.sub('[:/,]', '-', env)[:100]}-{digest}"


def chosen_training(iterations: int) -> dict[str, Any]:
    """Return keys that override the model's training; empty for ``iterations`` 0."""
    return {"iterations": iterations} if iterations else {}


def environment_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's keys among those of a run, such as ``env.prompt``."""
    return {name: value for name, value in keys.items() if name.startswith("env.")}


def imitation_keys(starter: StarterSpec, chosen: Mapping[str, Any], model: str = "") -> dict[str, Any]:
    """Return the keys of the run that imitates an environment's scripted demonstrator.

    Args:
        chosen: keys that were set.
        model: a pretrained model, which does not use the small network's lengths and learning rates.
    """
    if model:
        return {**environment_keys(starter.defaults), **PRETRAINED, **chosen}
    return {**starter.defaults, **starter.training, **chosen}


def imitation(env: str, starter: StarterSpec, chosen: Mapping[str, Any], seed: int, model: str = "") -> Settings:
    """Return the settings of that run, in one process; ``model`` is the small network if there is no other."""
    named = {"env": env, "algo": "sft", "seed": seed, **({"model": model} if model else {})}
    settings = Settings.from_dict({**imitation_keys(starter, chosen, model), **named})
    settings.make_local(chosen)
    return settings


def starter_config(starter: StarterSpec) -> dict[str, Any]:
    """Return the config.json of a warm-start model, which need not be built yet."""
    config: dict[str, Any] = json.loads(_config(starter.build_tokenizer, starter.build_model))
    return config


@functools.lru_cache(maxsize=64)
def _config(build_tokenizer: Callable[[], Any], build_model: Callable[[Any, int], Any]) -> str:
    """Return the configuration as JSON, so that every caller gets a copy of a network built once per process."""
    return json.dumps(build_model(build_tokenizer(), STARTER_SEED).config.to_dict(), default=str)
