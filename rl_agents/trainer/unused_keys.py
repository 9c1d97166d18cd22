"""Set keys that have no effect: which, why, and when they may be omitted."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, cast

from rl_agents.algorithms import ALGORITHMS, KEYS, AlgorithmSpec, Settings, readers
from rl_agents.algorithms.steppo import RatioLevelKeys
from rl_agents.config.options import keys_of, unmet
from rl_agents.config.sections import (
    AsyncKeys,
    DynamicSamplingKeys,
    ExpertKeys,
    OverlongKeys,
    RewardKeys,
    TeacherKeys,
    TruncationKeys,
)
from rl_agents.config.settings import EVALUATION_KEYS

#: Keys of rollouts and rewards, which have no effect on recorded sessions, and keys that recorded sessions replace.
PLAYING = {
    *keys_of(TruncationKeys), *keys_of(RewardKeys), *keys_of(AsyncKeys), "max_generation_batches",
    "demonstrations", "save_pool", "collapse_monitor", "success_replay", "success_replay_weight",
    "task_sampling", "task_uniform_share",
}  # fmt: skip
#: What an algorithm reads to choose groups and responses, and not for advantages.
CHOICE = {*keys_of(DynamicSamplingKeys), *keys_of(OverlongKeys)}
#: Keys without effect on sft.
SAMPLING = {*keys_of(AsyncKeys), *keys_of(ExpertKeys), *keys_of(TeacherKeys), "collapse_monitor", "task_sampling",
            "task_uniform_share", "truncation", "reward"}  # fmt: skip


def apply_defaults(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Set the algorithm's defaults for keys that were not set; a set KL coefficient disables the other one's default.

    Recorded sessions and asynchronous rollouts were sampled by other weights. By default the learner's
    log-probabilities are the denominator of their ratio, and the engine's the denominator of a truncated correction.
    """
    settings.set_defaults(recipe.defaults_of(settings))
    if settings.top_p < 1 and "success_replay" in recipe.reads:
        settings.set_defaults({"success_replay": 0})
    for chosen, default in (("kl_coef", "kl_in_reward_coef"), ("kl_in_reward_coef", "kl_coef")):
        if chosen in settings.explicit and getattr(settings, chosen):
            settings.set_defaults({default: 0.0})
    if (settings.pool or settings.async_level or settings.stream) and recipe.credit is not None:
        settings.set_defaults({"old_logprobs": "learner"})
        if settings.old_logprobs == "learner" and settings.top_p == 1:
            settings.set_defaults(
                {"rollout_correction": "token_tis" if settings.pool else stale_correction(settings, recipe)}
            )


def stale_correction(settings: Settings, recipe: AlgorithmSpec) -> str:
    """Return the default correction of rollouts that older weights sampled.

    One weight per token if ratios are per token. One per step if they are per step or sequence, or if single actions of
    one state are compared. The product over an episode would be exact for sequences, but with high variance.
    """
    unit = cast(RatioLevelKeys, settings).ratio_level if "ratio_level" in recipe.reads else recipe.stale_unit
    return "token_tis" if unit == "token" else "step_tis"


def advantage_keys(settings: Settings) -> frozenset[str]:
    """Return the keys that only the method of an environment's own ``advantages`` reads."""
    own = settings.advantages
    return ALGORITHMS[own].reads - ALGORITHMS[settings.algo].reads - CHOICE if own else frozenset()


def idle_keys(settings: Settings) -> dict[str, str]:
    """Return the set keys that have no effect, each with the reason.

    Args:
        settings: with the defaults of their algorithm (`apply_defaults`).
    """
    recipe = ALGORITHMS[settings.algo]
    idle: dict[str, str] = {}
    read = recipe.reads | advantage_keys(settings)
    evaluated = {name for name, value in EVALUATION_KEYS.items() if getattr(settings, name) == value}
    for name in sorted(settings.explicit & KEYS.keys()):
        users = [] if name in read else readers(name)
        if users:
            idle[name] = f"has no effect with algo {recipe.name}; it belongs to: {', '.join(sorted(users))}"
        elif missing := unmet(KEYS[name].needs, settings):
            idle[name] = f"has no effect without {missing}"
        elif recipe.source == "demonstrations" and name in SAMPLING - evaluated:
            idle[name] = f"has no effect with algo {recipe.name}: it trains on demonstrations"
        elif settings.pool and name in (PLAYING if recipe.credit is None else PLAYING | {"group_size"}) - evaluated:
            idle[name] = f"has no effect with pool={settings.pool}: its sessions are trained on as they were recorded"
    return idle


def idle_of(keys: Mapping[str, Any] | Settings) -> dict[str, str]:
    """Return those of ``keys`` that have no effect together with the others; see `idle_keys`.

    Raises `InputError`: unknown key, or a value of the wrong type.
    """
    settings = copy.deepcopy(keys) if isinstance(keys, Settings) else Settings.from_dict(keys)
    if settings.algo not in ALGORITHMS:
        return {}
    apply_defaults(settings, ALGORITHMS[settings.algo])
    return idle_keys(settings)


def layered(alone: Settings, recipe: Mapping[str, Any], flags: Mapping[str, Any]) -> Settings:
    """Return a recipe's keys under those of the command line, without those that a flag leaves without effect.

    ``--config vspo.yaml --set vspo_mode=random`` omits the recipe's ``vspo_temperature``. Keys of another algorithm
    stay, and so do keys without effect in the recipe ``alone``: they are mistakes. Raises `InputError`: see `choose`.
    """
    if not flags:
        return alone
    merged = Settings.from_dict({**recipe, **flags})
    if not recipe or merged.algo != alone.algo:
        return merged
    dropped = idle_of(merged).keys() - idle_of(alone).keys() - flags.keys()
    return Settings.from_dict({k: v for k, v in {**recipe, **flags}.items() if k not in dropped}) if dropped else merged
