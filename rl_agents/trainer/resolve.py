"""Complete and check the configuration of a run, so that errors appear before anything starts."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any, cast

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms import KEYS as ALL_KEYS
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.chain_gae import ChainGaeKeys
from rl_agents.chat.template import ChatOptions, load_tokenizer, make_context
from rl_agents.config import Settings, summary_limit, validate
from rl_agents.config.options import plain_text
from rl_agents.config.settings import OWN_KEYS
from rl_agents.config.validation import check_room
from rl_agents.durable import read_json
from rl_agents.envs.base import (
    EnvSpec,
    base_environment,
    borrowed,
    divide,
    env_spec,
    game_seats,
    part,
    plain_options,
    read_env_options,
    starter_defaults,
    starter_spec,
    task_ids,
)
from rl_agents.errors import InputError, unknown
from rl_agents.inference.engines import ENGINES, check_engine, resolve_engine
from rl_agents.inference.hub import find_folder, pinned
from rl_agents.inference.model_shape import (
    ModelShape,
    check_context,
    check_model_dir,
    context_limit,
    model_shape,
    read_config,
    rope_limit,
)
from rl_agents.interrupts import event_loop
from rl_agents.learner.prefix_sharing import packing_key
from rl_agents.rewards.base import REWARDS
from rl_agents.rewards.judges import check_judge
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.truncation import check_rule, make_embedder, progress_window
from rl_agents.store.files import pool_file
from rl_agents.trainer.engine_choice import settle_dtype, settle_engine
from rl_agents.trainer.lengths import KEYS, fill_lengths
from rl_agents.trainer.teacher_checks import check_teacher
from rl_agents.trainer.unused_keys import apply_defaults, refuse_idle, stale_correction

#: Age in versions up to which truncated importance weights were as good as the others (`benchmarks.experiments`).
MOST_TRUNCATED_AGE = 4
#: Parameters from which a model counts as pretrained, and from which it needs lower learning rates.
PRETRAINED, LARGE = 100_000_000, 1_000_000_000
#: Maximum learning rates of pretrained models: below `LARGE`, from `LARGE` on, and for adapters.
MAX_LR, MAX_LARGE_LR, MAX_LORA_LR = 5e-5, 1e-5, 1e-3
#: Default learning rates of pretrained models; other models have the key's default.
USUAL_LR, USUAL_LARGE_LR, USUAL_LORA_LR = 2e-5, 1e-6, 1e-4


def usual_rates(settings: Settings, shape: ModelShape | None) -> dict[str, float]:
    """Return the default learning rates of a pretrained model; empty for small models."""
    if shape is None or shape.parameters < PRETRAINED:
        return {}
    full = USUAL_LARGE_LR if shape.parameters >= LARGE else USUAL_LR
    return {"lr": USUAL_LORA_LR if settings.lora_rank else full, "critic_lr": 10 * full}


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


#: File of a model that was trained from a warm-start model: its environment and settings.
MODEL_NOTE = "rl_agents.json"
#: Keys that name code or programs, or their rights. A model's folder never sets them.
PROGRAMS = {"plugins"} | {
    f"env.{name}"
    for name in (
        "agent", "agent_command", "agent_python", "build", "eval_opponent", "id", "network", "opponent", "player",
        "rewards", "sandbox", "servers",
    )
}  # fmt: skip
#: Usual logprob mismatch between a bfloat16 engine and the learner (docs/reference/metrics.md).
BFLOAT16_GAP = 0.02
#: Ratio of the critic's to the policy's learning rate beyond which a run warns.
MAX_CRITIC_RATIO = 100.0


def resolve(settings: Settings, with_model: bool = True) -> Settings:
    """Fill the algorithm's and the warm-start model's defaults, and check everything that needs no built model.

    Each of several environments is resolved as if it were the only one; the first one's defaults hold for the run.

    Args:
        with_model: False does not read the model's folder, which may be missing then.

    Raises:
        InputError: unknown names, keys without effect for the algorithm, contradictions, missing model folder,
            unusable tokenizer, empty task set.
    """
    settings = copy.deepcopy(settings)
    divide(settings)
    if settings.algo not in ALGORITHMS:
        raise unknown("algorithm", settings.algo, ALGORITHMS)
    recipe = ALGORITHMS[settings.algo]
    if not settings.parts:
        return _resolved(settings, recipe, with_model)
    for name in ("pool", "teacher", "teacher_url", "expert_data", "demonstration_data"):
        if getattr(settings, name):
            raise InputError(f"{name}={getattr(settings, name)} does not work with several environments")
    if recipe.source == "search" or recipe.memory:
        raise InputError(f"{recipe.name} compares states, which several environments do not share; take grpo or gigpo")
    for name, own in settings.parts.items():
        own.only_split = settings.only_split
        try:
            settings.parts[name] = own = _resolved(own, recipe, with_model)
            if game_seats(own.env, own.env_options) > 1:
                raise InputError(f"env.opponent={own.env_options['opponent']}: such games are trained alone")
        except InputError as error:
            raise InputError(f"environment {name}: {error}") from error
    return _joined(settings)


def _joined(settings: Settings) -> Settings:
    """Return the run over ``settings.parts``: the first one's keys, with the greatest lengths, and all of theirs."""
    first, *others = settings.parts.values()
    run = copy.deepcopy(first)
    for own in others:
        for name in ALL_KEYS.keys() - {"env", *OWN_KEYS}:
            setattr(own, name, getattr(first, name))
    for name in ("max_turns", "max_response_tokens", "max_model_len", "max_summary_tokens"):
        setattr(run, name, max(getattr(own, name) for own in settings.parts.values()))
    run.env, run.parts, run.explicit, run.env_options = settings.env, settings.parts, settings.explicit, {}
    run.task_prefix, run.lengths = "", "; ".join(filter(None, (own.lengths for own in settings.parts.values())))
    run.environments = [
        {
            "env": own.env, "name": name, "weight": own.weight, **{key: getattr(own, key) for key in OWN_KEYS},
            **{f"env.{key}": value for key, value in own.env_options.items()},
        }
        for name, own in settings.parts.items()
    ]  # fmt: skip
    if settings.engine == "auto":
        run.engine = "auto"
        settle_engine(run)
    return run


def _resolved(settings: Settings, recipe: AlgorithmSpec, with_model: bool) -> Settings:
    """Resolve a run over one environment in place; see `resolve`."""
    spec = env_spec(settings.env)
    apply_defaults(settings, recipe)
    if "temperature" in settings.explicit:  # evaluations sample from the trained policy
        settings.set_defaults({"eval_temperature": settings.temperature})
    made_for = model_defaults(settings)
    settings.set_defaults(made_for)
    validate(settings)
    settle_dtype(settings)
    chosen = [name.removeprefix("env.") for name in settings.explicit if name.startswith("env.")]
    settings.env_options = plain_options(read_env_options(spec, settings.env_options, chosen))
    base = env_spec(base_environment(settings.env, settings.env_options))
    settings.max_turns = settings.max_turns or base.max_turns
    check_rule(settings)
    if settings.reward not in REWARDS:
        raise unknown("reward", settings.reward, REWARDS)
    _check_game(settings, recipe)
    _check_truncation(settings, recipe, base)
    check_recipe(settings, recipe)
    check_judge(settings)
    _check_environment(settings)
    if with_model:
        if settings.pool:
            settings.pool = str(pool_file(settings.pool))
        _check_model(settings, made_for)
        check_room(settings)
    maximum = settings.max_response_tokens
    if settings.overlong_factor and settings.overlong_cache > maximum:
        raise InputError(f"overlong_cache={settings.overlong_cache}: must not exceed the length limit of {maximum}")
    check_engine(settings)
    return settings


def resolve_chat(settings: Settings) -> Settings:
    """Check what a server of the model alone needs: its environment, which may be missing here, is not read.

    Raises:
        InputError: see `resolve`.
    """
    settings, made_for = copy.deepcopy(settings), model_note(settings.model).get("settings", {})
    settings.set_defaults(made_for)
    validate(settings)
    settle_dtype(settings)
    _check_model(settings, made_for)
    check_room(settings)
    check_engine(settings)
    return settings


def model_defaults(settings: Settings) -> Mapping[str, Any]:
    """Return the settings that the model was made for: a warm-start model, or one that was trained from it.

    For another environment, these are the learning rates, which depend on the weights.
    """
    if settings.model == "starter":
        return starter_defaults(settings.env, settings.env_options)
    made_for = model_note(settings.model, settings.env)
    if not made_for or made_for["env"] == settings.env:
        return made_for.get("settings", {})
    if made_for["env"] == base_environment(settings.env, settings.env_options):
        return borrowed(made_for["settings"])
    return {name: rate for name, rate in made_for["settings"].items() if name in ("lr", "critic_lr")}


def model_note(model: str | Path, env: str = "") -> dict[str, Any]:
    """Return the environment ``env`` that a warm-start model was built for, and its ``settings``; empty for others.

    Args:
        env: if it is among several environments that share the model, only this one's settings are returned.
    """
    file = (find_folder(model) or Path(model)) / MODEL_NOTE
    note = read_json(file, dict) if file.is_file() else {}
    for own in (note.get("settings", {}), *note.get("settings", {}).get("environments", ())):
        for name in PROGRAMS & own.keys():
            del own[name]
    for entry in note.get("settings", {}).get("environments", ()):
        if entry["env"] == env:
            own = {**note["settings"], **entry}
            return {"env": env, "settings": {key: own[key] for key in own.keys() - {"env", "name", "environments"}}}
    return note


def built_for(settings: Settings) -> str:
    """Return that the model was built for another environment, and the settings that are not used; else nothing."""
    note = model_note(settings.model, settings.env)
    if not note or note["env"] in (settings.env, base_environment(settings.env, settings.env_options)):
        return ""
    own = " ".join(f"{name}={value}" for name, value in note["settings"].items() if name in KEYS)
    return f"model={settings.model} was built for {note['env']}; its settings are not used ({own})"


def check_recipe(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Reject keys that have no effect, and keys that contradict each other.

    Raises:
        InputError: the first one, and why.
    """
    if settings.pool and recipe.source == "search":
        raise InputError(
            f"pool={settings.pool}: {recipe.name} samples at states of its own choice and cannot learn from recorded "
            "sessions; methods that compare or value whole episodes can (grpo, steppo, ...), and sft"
        )
    refuse_idle(settings)
    if recipe.source == "search" and (settings.stream or settings.async_level > 1):
        raise InputError(
            f"{'stream' if settings.stream else f'async_level={settings.async_level}'}: {recipe.name} chooses states "
            "by the results of its last samples, so it supports async_level=1 at most"
        )
    if recipe.grouped and settings.group_size < 2:
        raise InputError(
            f"group_size={settings.group_size}: {recipe.name} compares rollouts of one task, so it needs at least 2"
        )
    _check_contradictions(settings, recipe)
    check_teacher(settings, recipe)


def _check_demonstrator(settings: Settings) -> None:
    """Reject keys of an environment whose scripted player would play under others."""
    fixed = getattr(starter_spec(settings.env, settings.env_options).demonstrate, "fixed", {})
    for name, value in fixed.items():
        if (chosen := settings.env_options.get(name)) != value:
            raise InputError(
                f"env.{name}={chosen}: the scripted player of {settings.env} needs env.{name}={value}; "
                "demonstration_data=FILE imitates the dialogues of a table instead"
            )


def _check_contradictions(settings: Settings, recipe: AlgorithmSpec) -> None:
    if recipe.source == "demonstrations":
        if not settings.demonstration_data and not settings.pool:
            _check_demonstrator(settings)
        return
    if 0 < settings.dual_clip <= 1:
        raise InputError(f"dual_clip={settings.dual_clip:g}: a maximum ratio is above 1, such as 3; 0 means no limit")
    if settings.kl_coef and settings.kl_in_reward_coef:
        raise InputError(
            f"kl_coef={settings.kl_coef} and kl_in_reward_coef={settings.kl_in_reward_coef} count the KL twice: "
            "set one of them to 0"
        )
    if settings.rollout_correction != "none" and settings.old_logprobs != "learner":
        raise InputError(
            f"rollout_correction={settings.rollout_correction} needs old_logprobs=learner: with the engine's logprobs "
            "as denominator the ratio already contains the correction"
        )
    if settings.top_p < 1 and settings.old_logprobs == "engine" and not settings.complete:
        raise InputError(
            f"top_p={settings.top_p:g} needs old_logprobs=learner: the engine's logprobs are those of the nucleus, the "
            "learner scores all tokens, so ratios would be wrong before the first step"
        )
    if settings.top_p < 1 and settings.rollout_correction != "none" and not settings.complete:
        raise InputError(
            f"top_p={settings.top_p:g} does not work with rollout_correction={settings.rollout_correction}: the "
            "engine's logprobs are those of the nucleus, the learner's of all tokens, so every weight would contain "
            "the mass of the nucleus; set top_p=1 or rollout_correction=none"
        )
    if settings.top_p < 1 and "success_replay" in recipe.reads and cast(ChainGaeKeys, settings).success_replay:
        raise InputError(
            f"top_p={settings.top_p:g} does not work with success_replay: its ratios need the engine's logprobs of the "
            "whole vocabulary, not of the nucleus; set top_p=1 or success_replay=0"
        )


def cautions(settings: Settings) -> list[str]:
    """Return warnings about a run, one line each.

    Args:
        settings: resolved.
    """
    recipe = ALGORITHMS[settings.algo]
    found = off_policy_cautions(settings, recipe)
    folder = None if settings.model == "starter" else find_folder(settings.model)
    if folder and (line := rate_caution(settings, model_shape(read_config(folder)))):
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


def _check_truncation(settings: Settings, recipe: AlgorithmSpec, spec: EnvSpec) -> None:
    """Fill in T3's window; reject truncation and rewards for demonstrations, which have no rollouts, and searches."""
    for name, idle in (("truncation", "none"), ("reward", "environment")):
        if recipe.source == "demonstrations" and name in settings.explicit and getattr(settings, name) != idle:
            raise InputError(f"key '{name}' has no effect with algo {recipe.name}: it trains on demonstrations")
        if recipe.source == "search" and getattr(settings, name) != idle:
            raise InputError(
                f"{name}={getattr(settings, name)} does not work with algo {recipe.name}: it rewards single steps and "
                f"drops hopeless states itself; leave {name}={idle}"
            )
    if recipe.source == "search" and summary_limit(settings.context) is not None:
        raise InputError(
            f"context={settings.context} does not work with algo {recipe.name}: it compares single actions, and a "
            "summary is none; take context=append or window(n)"
        )
    if settings.truncation == "t3":
        settings.truncation_window = progress_window(settings, spec)
    if settings.truncation == "similarity":
        make_embedder(settings.truncation_embedder)


def _check_game(settings: Settings, recipe: AlgorithmSpec) -> None:
    """Reject what games with a policy in every seat do not support."""
    seats = game_seats(settings.env, settings.env_options)
    if seats == 1 or settings.only_split or settings.pool or recipe.source == "demonstrations":
        return
    remedies = {
        "algo": (recipe.source != "search", "a method that rolls out whole episodes does, such as rloo"),
        "stream": (not settings.stream, "leave it false"),
        "truncation": (settings.truncation == "none", "leave it none"),
        "prompting": (settings.prompting == "direct", "leave it direct"),
        "tasks_per_iteration": (settings.tasks_per_iteration % seats == 0, f"it must be a multiple of {seats}"),
    }
    for name, (works, remedy) in remedies.items():
        if not works:
            raise InputError(
                f"env.opponent={settings.env_options['opponent']} does not work with {name}="
                f"{plain_text(getattr(settings, name))}: a game's {seats} seats are rolled out together; {remedy}"
            )


def _check_environment(settings: Settings) -> None:
    """Reject an empty task set, and a user's environment that does not take text.

    Exceptions of its code are left to the episodes: other tasks may work.
    """
    tasks = task_ids(settings.env, settings.only_split or "train", settings.env_options)
    if env_spec(settings.env).agent:
        _check_agent(settings)
    if ":" in settings.env:
        plain = copy.copy(settings)
        plain.prompting = "direct"
        pool = env_pool(plain)
        with event_loop() as loop, contextlib.suppress(EnvFailure):
            loop.run(_reset(pool, tasks[0], settings.env_timeout_s))


async def _reset(pool: EnvPool, task: str, timeout_s: float) -> None:
    """Reset an environment; raises as `EnvGuard.call` does."""
    env = await pool.take()
    try:
        await pool.guard(env, task, 0, timeout_s).call(env.reset, seed=0, options={"task_id": task})
    finally:
        await pool.discard(env)


def _check_agent(settings: Settings) -> None:
    """Reject an agent that cannot be started, and keys without effect on an external agent."""
    spec = env_spec(settings.env)
    options = read_env_options(spec, settings.env_options)
    part(spec, "agents", "load_agent")(options)
    if settings.placement == "colocate":
        raise InputError(f"placement=colocate: the gateway of env={settings.env} needs engines in actors of their own")
    if settings.num_env_runners and options.agent_timeout_s >= settings.sample_timeout_s:
        raise InputError(
            f"env.agent_timeout_s={options.agent_timeout_s:g} with sample_timeout_s={settings.sample_timeout_s:g}: a "
            "runner would be replaced before its agents' time is over; raise sample_timeout_s"
        )
    for name, value in (("prompting", "direct"), ("context", "append")):
        if getattr(settings, name) != value:
            raise InputError(
                f"{name}={getattr(settings, name)} has no effect with env={settings.env}: the agent writes its own "
                f"prompts; leave {name}={value}"
            )


def _check_model(settings: Settings, made_for: Mapping[str, Any]) -> None:
    """Check the model's folder, and fill in the lengths that are not set (`rl_agents.trainer.lengths`)."""
    if settings.model == "starter":
        settle_engine(settings)
        return
    folder = check_model_dir(settings.model)  # before torch is imported, which takes seconds
    settings.model = pinned(settings.model)
    from rl_agents.learner.model_check import check_model, check_sharing, check_vocabulary

    check_model(folder)
    config = read_config(folder)
    limit = context_limit(config)
    fixed = rope_limit(config)
    context = make_context(settings.context, tokenizer := load_tokenizer(folder), ChatOptions.from_settings(settings))
    shape = model_shape(config)
    settings.set_defaults(usual_rates(settings, shape))
    check_vocabulary(folder, tokenizer, shape.vocabulary if shape else None)
    if not (settings.complete or settings.lengths or made_for.keys() >= set(KEYS)):
        lowest = min(filter(None, (limit, fixed)), default=None)
        fill_lengths(settings, context, settings.explicit | made_for.keys(), lowest, built_for(settings))
    check_context(settings, limit)
    if fixed and settings.max_model_len > fixed:
        raise InputError(
            f"max_model_len={settings.max_model_len}: beyond {fixed} tokens the positions of model={settings.model} "
            "depend on the text's length (longrope), which learner and vLLM compute differently"
        )
    if not settings.complete and "strftime_now" in str(tokenizer.chat_template):
        settings.template_date = settings.template_date or date.today().isoformat()  # one date for the whole run
    settle_engine(settings)
    ENGINES[resolve_engine(settings.engine)[0]].check_model(settings, folder)
    if asked := packing_key(settings):
        check_sharing(folder, settings.max_model_len, asked)
