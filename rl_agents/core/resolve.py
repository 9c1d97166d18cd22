"""From chosen keys to a complete, checked configuration: everything that can fail early fails here."""

from __future__ import annotations

import copy

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import ALGORITHM_KEYS, Recipe
from rl_agents.envs.base import checked_options, env_spec, task_ids
from rl_agents.errors import InputError, unknown
from rl_agents.settings import Settings


def resolve(settings: Settings) -> Settings:
    """Fill the algorithm's and the starter model's defaults, and check what needs no built model.

    Raises:
        InputError: unknown names, keys without effect for the algorithm, contradictions, missing model folder,
            unusable tokenizer, empty task set.
    """
    from rl_agents.starter import model_defaults

    settings = copy.deepcopy(settings)
    if settings.algo not in ALGORITHMS:
        raise unknown("algorithm", settings.algo, ALGORITHMS)
    recipe = ALGORITHMS[settings.algo]
    spec = env_spec(settings.env)
    settings.set_defaults(recipe.defaults)
    settings.set_defaults(model_defaults(settings))
    settings.validate()
    settings.env_options = checked_options(spec, settings.env_options)
    settings.max_turns = settings.max_turns or spec.max_turns
    _check_keys(settings, recipe)
    task_ids(settings.env, "train", settings.env_options)
    _check_model(settings)
    _check_engine(settings)
    return settings


def _check_keys(settings: Settings, recipe: Recipe) -> None:
    for name in sorted(settings.explicit & ALGORITHM_KEYS - recipe.uses):
        users = sorted(r.name for r in ALGORITHMS.values() if name in r.uses)
        raise InputError(f"key '{name}' has no effect with algo {recipe.name}; it belongs to: {', '.join(users)}")
    if recipe.grouped and settings.group_size < 2:
        raise InputError(
            f"group_size={settings.group_size}: {recipe.name} compares rollouts of one task, so it needs at least 2"
        )


def _check_model(settings: Settings) -> None:
    if settings.model == "starter":
        return
    from rl_agents.core.hf import check_model_dir
    from rl_agents.rollout.context import load_tokenizer, make_context

    make_context(settings.context, load_tokenizer(check_model_dir(settings.model)))


def _check_engine(settings: Settings) -> None:
    from rl_agents.engines.select import resolve_engine

    resolve_engine(settings.engine)
