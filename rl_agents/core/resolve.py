"""From chosen keys to a complete, checked configuration: everything that can fail early fails here."""

from __future__ import annotations

import copy
from collections.abc import Callable

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import ALGORITHM_KEYS, Recipe
from rl_agents.envs.base import EnvSpec, checked_options, env_spec, task_ids
from rl_agents.errors import InputError, unknown
from rl_agents.rollout.embedders import make_embedder
from rl_agents.rollout.truncation_rules import progress_window
from rl_agents.settings import Settings


def resolve(settings: Settings) -> Settings:
    """Fill the algorithm's and the starter model's defaults, and check what needs no built model.

    Raises:
        InputError: unknown names, keys without effect for the algorithm, contradictions, missing model folder,
            unusable tokenizer, empty task set.
    """
    from rl_agents.core.starter import model_defaults

    settings = copy.deepcopy(settings)
    if settings.algo not in ALGORITHMS:
        raise unknown("algorithm", settings.algo, ALGORITHMS)
    recipe = ALGORITHMS[settings.algo]
    spec = env_spec(settings.env)
    apply_defaults(settings, recipe)
    settings.set_defaults(model_defaults(settings))
    settings.validate()
    settings.env_options = checked_options(spec, settings.env_options)
    settings.max_turns = settings.max_turns or spec.max_turns
    _check_truncation(settings, recipe, spec)
    check_recipe(settings, recipe)
    task_ids(settings.env, "train", settings.env_options)
    _check_model(settings)
    _check_engine(settings)
    return settings


def apply_defaults(settings: Settings, recipe: Recipe) -> None:
    """Slip the recipe's defaults under what was chosen; a chosen KL replaces a default one of the other kind."""
    settings.set_defaults(recipe.defaults)
    for chosen, default in (("kl_coef", "kl_in_reward_coef"), ("kl_in_reward_coef", "kl_coef")):
        if chosen in settings.explicit and getattr(settings, chosen):
            settings.set_defaults({default: 0.0})


def check_recipe(settings: Settings, recipe: Recipe) -> None:
    """Refuse keys that the algorithm does not read, and keys that contradict each other.

    Raises:
        InputError: the first one, and why.
    """
    _check_keys(settings, recipe)
    _check_contradictions(settings, recipe)


def _check_contradictions(settings: Settings, recipe: Recipe) -> None:
    if recipe.source == "demonstrations":
        return
    if settings.kl_coef and settings.kl_in_reward_coef:
        raise InputError(
            f"kl_coef={settings.kl_coef} and kl_in_reward_coef={settings.kl_in_reward_coef} count the KL twice: "
            "set one of them to 0"
        )
    if settings.mismatch != "none" and settings.old_logprobs != "learner":
        raise InputError(
            f"mismatch={settings.mismatch} needs old_logprobs=learner: with the engine's logprobs as denominator the "
            "ratio holds the correction already, and it would count twice"
        )
    for name, (active, needed) in CONDITIONS.items():
        if name in settings.explicit and not active(settings):
            raise InputError(f"key '{name}' has no effect without {needed}")
    if recipe.source == "search" and settings.lr_decay:
        raise InputError(f"lr_decay={settings.lr_decay}: {recipe.name} does not know its number of optimiser steps")
    maximum = settings.overlong_length or settings.max_response_tokens
    if settings.overlong_factor and settings.overlong_cache > maximum:
        raise InputError(f"overlong_cache={settings.overlong_cache}: must not exceed the length limit of {maximum}")


def ineffective_keys(settings: Settings, recipe: Recipe) -> dict[str, str]:
    """Explicitly chosen keys that change nothing, with the reason."""
    found = {name: f"algo {recipe.name}" for name in settings.explicit & ALGORITHM_KEYS - recipe.uses}
    for name, (active, needed) in {**CONDITIONS, **ABLATION_CONDITIONS}.items():
        if name in settings.explicit and name not in found and not active(settings):
            found[name] = f"without {needed}"
    return found


Condition = tuple[Callable[[Settings], bool], str]

#: Keys that only mean something beside another: a mistake when set without it.
CONDITIONS: dict[str, Condition] = {
    "kl_controller": (lambda s: s.kl_controller == "constant" or s.kl_in_reward_coef > 0, "kl_in_reward_coef above 0"),
    "kl_target": (lambda s: s.kl_controller == "adaptive", "kl_controller=adaptive"),
    "kl_horizon": (lambda s: s.kl_controller == "adaptive", "kl_controller=adaptive"),
    "mismatch_cap": (
        lambda s: s.mismatch in ("token_tis", "sequence_tis", "seq_mis", "k3_rs"),
        "mismatch=token_tis, sequence_tis, seq_mis or k3_rs",
    ),
    "mismatch_bounds": (
        lambda s: s.mismatch in ("seq_mis", "geo_rs", "icepop", "seq_mask_tis"),
        "mismatch=seq_mis, geo_rs, icepop or seq_mask_tis",
    ),
    "mismatch_normalise": (lambda s: s.mismatch != "none", "mismatch"),
    "loss_length": (lambda s: s.aggregation == "seq-mean-token-sum-norm", "aggregation=seq-mean-token-sum-norm"),
    "divide_by_rows": (lambda s: s.aggregation == "seq-mean-token-sum-norm", "aggregation=seq-mean-token-sum-norm"),
}

#: The same for keys that a sweep switches off by another, which is no mistake.
ABLATION_CONDITIONS: dict[str, Condition] = {
    "kl_estimator": (lambda s: s.kl_coef > 0, "kl_coef above 0"),
    "kl_in_reward_estimator": (lambda s: s.kl_in_reward_coef > 0, "kl_in_reward_coef above 0"),
    "dynamic_sampling_metric": (lambda s: s.dynamic_sampling, "dynamic_sampling"),
    "max_generation_batches": (lambda s: s.dynamic_sampling, "dynamic_sampling"),
    "overlong_length": (lambda s: s.overlong_factor > 0, "overlong_factor above 0"),
    "overlong_cache": (lambda s: s.overlong_factor > 0, "overlong_factor above 0"),
    "novelty_decay": (lambda s: s.novelty != "none" and not s.novelty_fixed, "a novelty and novelty_fixed=0"),
    "novelty_fixed": (lambda s: s.novelty != "none", "a novelty"),
    "vspo_temperature": (lambda s: s.vspo_mode == "value", "vspo_mode=value"),
    "vspo_alpha": (lambda s: s.vspo_clip and s.vspo_mode != "none", "vspo_clip and a vspo_mode"),
}


def _check_keys(settings: Settings, recipe: Recipe) -> None:
    for name in sorted(settings.explicit & ALGORITHM_KEYS - recipe.uses):
        users = sorted(r.name for r in ALGORITHMS.values() if name in r.uses)
        raise InputError(f"key '{name}' has no effect with algo {recipe.name}; it belongs to: {', '.join(users)}")
    if recipe.grouped and settings.group_size < 2:
        raise InputError(
            f"group_size={settings.group_size}: {recipe.name} compares rollouts of one task, so it needs at least 2"
        )


def _check_truncation(settings: Settings, recipe: Recipe, spec: EnvSpec) -> None:
    """Fill in T3's window; refuse what demonstrations, which nobody plays, and searches cannot have."""
    for name, idle in (("truncation", "none"), ("reward", "environment")):
        if recipe.source == "demonstrations" and name in settings.explicit and getattr(settings, name) != idle:
            raise InputError(f"key '{name}' has no effect with algo {recipe.name}: it learns from demonstrations")
        if recipe.source == "search" and getattr(settings, name) != idle:
            raise InputError(
                f"{name}={getattr(settings, name)} does not go with algo {recipe.name}: it rewards single steps and "
                f"drops hopeless states by itself; leave {name}={idle}"
            )
    if settings.truncation == "t3":
        settings.truncation_window = progress_window(settings, spec)
    if settings.truncation == "similarity":
        make_embedder(settings.truncation_embedder)


def _check_model(settings: Settings) -> None:
    if settings.model == "starter":
        return
    from rl_agents.chat.context import load_tokenizer, make_context
    from rl_agents.core.hf import check_model_dir

    make_context(settings.context, load_tokenizer(check_model_dir(settings.model)))


def _check_engine(settings: Settings) -> None:
    from rl_agents.engines.select import resolve_engine

    resolve_engine(settings.engine)
