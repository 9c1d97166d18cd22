"""Measure what a resolved configuration leaves open: data type, lengths, and engine; and check that the run can start.

The result is what ``config.yaml`` records. Environments are made and reset, tokenizers and configurations are read, and
nothing is trained or written.
"""

from __future__ import annotations

import contextlib
import copy
import pkgutil
from datetime import date

from rl_agents.chat.template import ChatOptions, load_tokenizer, make_context
from rl_agents.config import Settings, summary_limit
from rl_agents.envs.base import env_spec, part, read_env_options, task_ids
from rl_agents.errors import InputError, named
from rl_agents.inference.base import StreamingEngine
from rl_agents.inference.engines import ENGINES, check_engine, resolve_engine
from rl_agents.inference.hub import model_folder, pinned
from rl_agents.inference.model_shape import (
    check_context,
    check_model_dir,
    context_limit,
    model_shape,
    read_config,
    rope_limit,
)
from rl_agents.interrupts import event_loop
from rl_agents.learner.prefix_sharing import packing_key
from rl_agents.rollout.env_calls import EnvFailure
from rl_agents.rollout.env_pool import EnvPool, env_pool
from rl_agents.rollout.truncation import make_embedder
from rl_agents.store.files import pool_file
from rl_agents.trainer.engine_choice import settle_dtype, settle_engine
from rl_agents.trainer.lengths import KEYS, fill_lengths
from rl_agents.trainer.model_note import built_for, model_defaults, model_note
from rl_agents.trainer.resolve import joined, of_part, resolve


def ready(settings: Settings) -> Settings:
    """Return chosen keys resolved and measured, once. Raises `InputError`: as `resolve` and `measure` do."""
    return settings if settings.measured else measure(resolve(settings))


def measure(settings: Settings, with_model: bool = True, plays: bool = True) -> Settings:
    """Return what `resolve` returned with all that was open; nothing fills its keys afterwards.

    Args:
        with_model: False does not read the model's folder, which may be missing then.
        plays: False for a server of the model alone, whose environment may be missing.

    Raises:
        InputError: missing model folder, unusable tokenizer, empty task set, no room for a prompt, an agent, an
            environment or an engine that cannot run.
    """
    settings = copy.deepcopy(settings)
    for own in settings.each.values():
        with of_part(own):
            settle_dtype(own)
            if plays:
                _check_environment(own)
            if with_model:
                if own.pool:
                    own.pool = str(pool_file(own.pool))
                if own.model != "starter":
                    _check_model(own, plays)
                check_room(own)
    if settings.parts:
        settings = joined(settings)
    _choose_engine(settings, with_model)
    for own in (settings, *settings.parts.values()):
        own.measured = with_model
    return settings


def _choose_engine(settings: Settings, with_model: bool) -> None:
    """Choose the engine of ``engine=auto``, and check that the engine can run this model with these keys."""
    if with_model:
        settle_engine(settings)
    kind = ENGINES[resolve_engine(settings.engine)[0]]
    if not kind.build.startswith("rl_agents."):  # a plugin's
        with named(f"engine {kind.name}: {kind.build}"):
            made = pkgutil.resolve_name(kind.build)
        wanted = [name for name in dir(StreamingEngine) if not name.startswith("_")]
        if isinstance(made, type) and (lacks := [name for name in wanted if not hasattr(made, name)]):
            raise InputError(f"engine {kind.name}: {kind.build} is no StreamingEngine: it has no {', '.join(lacks)}")
    if with_model and settings.model != "starter":
        kind.check_model(settings, folder := model_folder(settings.model))
        if asked := packing_key(settings):
            from rl_agents.learner.model_check import check_sharing

            check_sharing(folder, settings.max_model_len, asked)
    check_engine(settings)
    for own in settings.parts.values():
        own.engine = settings.engine


def check_room(settings: Settings) -> None:
    """Reject lengths that leave no room for a prompt, or for a summary. Raises `InputError`: there is no room."""
    most, length, beyond = settings.max_response_tokens, settings.max_model_len, summary_limit(settings.context)
    if beyond is not None and beyond >= length:
        raise InputError(
            f"context={settings.context}: no summary would be written within max_model_len={length}; "
            "take a smaller n, so that a response, the request and the summary follow n tokens"
        )
    if most >= length:
        raise InputError(f"max_response_tokens={most} leaves no room for a prompt in max_model_len={length}")
    if settings.overlong_factor and settings.overlong_cache > most:
        raise InputError(f"overlong_cache={settings.overlong_cache}: must not exceed the length limit of {most}")


def _check_environment(settings: Settings) -> None:
    """Reject an empty task set, an agent that cannot be started, and a user's environment that does not take text.

    Exceptions of its code are left to the episodes: other tasks may work.
    """
    if settings.truncation == "similarity":
        make_embedder(settings.truncation_embedder)
    tasks = task_ids(settings.env, settings.only_split or "train", settings.env_options)
    spec = env_spec(settings.env)
    if spec.agent:
        part(spec, "agents", "load_agent")(read_env_options(spec, settings.env_options))
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


def _check_model(settings: Settings, plays: bool) -> None:
    """Check the model's folder, and fill in the lengths that are not set (`rl_agents.trainer.lengths`)."""
    folder = check_model_dir(settings.model)  # before torch is imported, which takes seconds
    settings.model = pinned(settings.model)
    from rl_agents.learner.model_check import check_model, check_vocabulary

    check_model(folder)
    config = read_config(folder)
    limit, fixed, shape = context_limit(config), rope_limit(config), model_shape(config)
    context = make_context(settings.context, tokenizer := load_tokenizer(folder), ChatOptions.from_settings(settings))
    check_vocabulary(folder, tokenizer, shape.vocabulary if shape else None)
    made_for = (model_defaults(settings) if plays else model_note(folder).get("settings", {})).keys()
    if not (settings.complete or made_for >= set(KEYS)):
        lowest = min(filter(None, (limit, fixed)), default=None)
        fill_lengths(settings, context, settings.explicit | made_for, lowest, built_for(settings))
    check_context(settings, limit)
    if fixed and settings.max_model_len > fixed:
        raise InputError(
            f"max_model_len={settings.max_model_len}: beyond {fixed} tokens the positions of model={settings.model} "
            "depend on the text's length (longrope), which learner and vLLM compute differently"
        )
    if not settings.complete and "strftime_now" in str(tokenizer.chat_template):
        settings.template_date = settings.template_date or date.today().isoformat()  # one date for the whole run
