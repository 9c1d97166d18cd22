"""Warnings about a run that works, but probably not as it is meant: learning rates, old samples, time limits."""

from __future__ import annotations

import math

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.config import Settings
from rl_agents.envs.base import env_spec
from rl_agents.inference.model_shape import ModelShape
from rl_agents.trainer.model_note import LARGE, PRETRAINED, shape_of
from rl_agents.trainer.unused_keys import stale_correction

#: Age in versions up to which truncated importance weights were as good as the others (`benchmarks.experiments`).
MOST_TRUNCATED_AGE = 4
#: Maximum learning rates of pretrained models: below `LARGE`, from `LARGE` on, and for adapters.
MAX_LR, MAX_LARGE_LR, MAX_LORA_LR = 5e-5, 1e-5, 1e-3
#: Usual logprob mismatch between a bfloat16 engine and the learner (docs/reference/metrics.md).
BFLOAT16_GAP = 0.02
#: Ratio of the critic's to the policy's learning rate beyond which a run warns.
MAX_CRITIC_RATIO = 100.0


def cautions(settings: Settings) -> list[str]:
    """Return warnings about a run, one line each.

    Args:
        settings: resolved.
    """
    recipe = ALGORITHMS[settings.algo]
    found = off_policy_cautions(settings, recipe)
    if line := rate_caution(settings, shape_of(settings.model)):
        found.append(line)
    if (
        recipe.credit
        and settings.dtype == "bfloat16"
        and settings.old_logprobs == "engine"
        and min(settings.clip_low, settings.clip_high) < BFLOAT16_GAP
    ):
        found.append(
            f"clip ranges of {settings.clip_low:g} and {settings.clip_high:g} are narrower than the bfloat16 gap "
            f"between engine and learner (about {BFLOAT16_GAP:g}): many tokens are clipped before the first step; "
            "set old_logprobs=learner"
        )
    if recipe.critic and settings.lr and settings.critic_lr > 1.001 * MAX_CRITIC_RATIO * settings.lr:
        found.append(
            f"critic_lr={settings.critic_lr:g} is more than {MAX_CRITIC_RATIO:g} times lr={settings.lr:g}; the papers "
            "take 10 times"
        )
    if settings.num_env_runners and recipe.source != "search":
        for own in settings.each.values():
            found += _long_rounds(own) if env_spec(own.env).agent else []
    return found


def _long_rounds(settings: Settings) -> list[str]:
    """Warn if agents that use all of their time exceed the runner's time."""
    options, episodes = settings.env_options, settings.tasks_per_iteration * settings.group_size
    rounds = math.ceil(episodes / settings.num_env_runners / options["agent_concurrency"])
    longest = rounds * options["agent_timeout_s"]
    if longest <= settings.sample_timeout_s:
        return []
    return [
        f"{rounds} rounds of agents may take {longest:g} s, and sample_timeout_s={settings.sample_timeout_s:g}: if "
        "they do, the runner is replaced and repeats them; raise sample_timeout_s or env.agent_concurrency"
    ]


def rate_caution(settings: Settings, shape: ModelShape | None) -> str:
    """Warn that a learning rate is too high for pretrained weights; empty if it is not."""
    if shape is None or shape.parameters < PRETRAINED:
        return ""
    most = MAX_LORA_LR if settings.lora_rank else MAX_LARGE_LR if shape.parameters >= LARGE else MAX_LR
    if settings.lr <= most:
        return ""
    return (
        f"lr={settings.lr:g} is beyond {most:g}, too high for pretrained weights of {shape.parameters / 1e6:.0f} M "
        "parameters: the policy collapses to few answers"
    )


def off_policy_cautions(settings: Settings, recipe: AlgorithmSpec) -> list[str]:
    """Warn about training on samples of other weights without correction, and about corrections of very old samples."""
    if recipe.credit is None or not (settings.pool or settings.async_level or settings.stream):
        return []
    mode, age, correction = "pool", 0, "token_tis"
    if not settings.pool:
        age = settings.max_staleness if settings.stream else settings.async_level
        mode = f"stream with max_staleness={age}" if settings.stream else f"async_level={age}"
        correction = stale_correction(settings, recipe)
    found = []
    if not (settings.pool or settings.save_pool):
        found.append("save_pool=false: a resumed run samples batches in flight again, with newer weights")
    if settings.rollout_correction.endswith("tis") and age > MOST_TRUNCATED_AGE:
        found.append(
            f"{mode} with rollout_correction={settings.rollout_correction}: beyond {MOST_TRUNCATED_AGE}, truncated "
            "weights lost success in our measurements (docs/explanation/staleness.md); "
            "old_logprobs=engine rollout_correction=none lost least"
        )
    elif settings.rollout_correction == "none" and settings.old_logprobs == "learner":
        found.append(
            f"{mode} with rollout_correction=none: samples of other weights count as if they were the learner's; "
            f"{'top_p=1 ' if settings.top_p < 1 else ''}rollout_correction={correction} corrects them"
        )
    elif settings.rollout_correction == "none" and age <= MOST_TRUNCATED_AGE:
        found.append(
            f"{mode} with old_logprobs=engine: ratios are against the weights that sampled, which uses up clip ranges "
            f"before the first optimizer step; old_logprobs=learner rollout_correction={correction} corrects instead"
        )
    return found
