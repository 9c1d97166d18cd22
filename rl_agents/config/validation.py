"""Contradictions between keys that can be found without a model or an environment."""

from __future__ import annotations

from datetime import date

from rl_agents.config.loading import context_window, summary_limit
from rl_agents.config.settings import Settings
from rl_agents.errors import InputError


def validate(settings: Settings) -> None:
    """Check keys against each other. Raises `InputError`: the first contradiction."""
    if settings.temperature == 0:
        raise InputError("temperature=0: training needs a stochastic policy; use eval_temperature=0 for greedy tests")
    bounds = settings.rollout_correction_bounds
    if len(bounds) not in (0, 2) or sorted(bounds) != bounds:
        raise InputError(f"rollout_correction_bounds={bounds}: write [low, high], or [] for the method's own")
    if len(settings.betas) != 2:
        raise InputError(f"betas={settings.betas}: two numbers are needed")
    if (
        settings.model == "starter"
        or settings.complete
        or settings.explicit >= {"max_response_tokens", "max_model_len"}
    ):
        check_room(settings)  # otherwise one of them is still to be measured
    if settings.learner_sharding == "fsdp" and settings.num_learners < 2:
        raise InputError(f"learner_sharding=fsdp needs num_learners of 2 or more, not {settings.num_learners}")
    if settings.learner_sharding == "fsdp" and settings.optimizer == "muon":
        raise InputError("learner_sharding=fsdp with optimizer=muon: Muon needs whole matrices; take optimizer=adamw")
    if settings.tensor_parallel > 1 and settings.engine_mode != "async":
        raise InputError(f"tensor_parallel={settings.tensor_parallel} needs engine_mode=async")
    _check_placement(settings)
    _check_asynchrony(settings)
    context_window(settings.context)
    if settings.template_date:
        try:
            date.fromisoformat(settings.template_date)
        except ValueError:
            raise InputError(f"template_date={settings.template_date}: write it as YYYY-MM-DD") from None
    if settings.prompting == "reflexion" and settings.truncation != "none":
        raise InputError("prompting=reflexion runs several attempts in one episode; it needs truncation=none")
    if settings.prs_form == "general" and len(settings.prs_thresholds) != 2:
        raise InputError(f"prs_thresholds={settings.prs_thresholds}: two numbers are needed")


def check_room(settings: Settings) -> None:
    """Reject lengths that leave no room for a prompt, or for a summary. Raises `InputError`: there is no room."""
    beyond = summary_limit(settings.context)
    if beyond is not None and beyond >= settings.max_model_len:
        raise InputError(
            f"context={settings.context}: no summary would be written within max_model_len={settings.max_model_len}; "
            "take a smaller n, so that a response, the request and the summary follow n tokens"
        )
    if settings.max_response_tokens >= settings.max_model_len:
        raise InputError(
            f"max_response_tokens={settings.max_response_tokens} leaves no room for a prompt in "
            f"max_model_len={settings.max_model_len}"
        )


def _check_placement(settings: Settings) -> None:
    """Reject settings that an engine in an env runner's process cannot have."""
    why = ""
    if settings.num_env_runners == 0:
        why = "needs num_env_runners of 1 or more: without env runners the engine is in the driver's process anyway"
    elif settings.num_engines > 1:
        why = f"each env runner has its own engine: set num_env_runners={settings.num_engines} instead of num_engines"
    elif settings.engine_mode != "inprocess":
        why = f"engine_mode={settings.engine_mode} has processes of its own; leave engine_mode=inprocess"
    elif settings.gpus_per_engine:
        why = "for engines on CPUs; leave gpus_per_engine=0"
    if settings.placement == "colocate" and why:
        raise InputError(f"placement=colocate: {why}")


def _check_asynchrony(settings: Settings) -> None:
    if settings.stream and settings.async_level:
        raise InputError(
            f"stream with async_level={settings.async_level}: the two are mutually exclusive; set one of them"
        )
    if settings.stream and not settings.num_env_runners:
        raise InputError("stream needs num_env_runners of 1 or more: in one process nothing samples while it learns")
