"""Names of keys in other libraries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rl_agents.errors import InputError, closest

#: Another library's name -> the key that means the same, with the same unit (TRL, verl, Stable-Baselines3, RLlib,
#: OpenRLHF). Both are accepted; config.yaml has the key.
ALIASES: Mapping[str, str] = {
    "learning_rate": "lr",
    "actor_lr": "lr",
    "value_lr": "critic_lr",
    "num_generations": "group_size",
    "num_rollouts": "group_size",
    "n_samples_per_prompt": "group_size",
    "num_epochs": "epochs",
    "ppo_epochs": "epochs",
    "num_iterations": "iterations",
    "horizon": "max_turns",
    "beta": "kl_coef",
    "kl_loss_coef": "kl_coef",
    "init_kl_coef": "kl_in_reward_coef",
    "epsilon_high": "clip_high",
    "clip_ratio_c": "dual_clip",
    "vf_clip_range": "cliprange_value",
    "ent_coef": "entropy_coef",
    "entropy_coeff": "entropy_coef",
    "lambda_": "gae_lambda",
    "discount": "gamma",
    "max_grad_norm": "grad_clip",
    "max_tokens": "max_response_tokens",
    "max_new_tokens": "max_response_tokens",
    "max_completion_length": "max_response_tokens",
    "max_response_length": "max_response_tokens",
    "model_name_or_path": "model",
    "model_path": "model",
    "env_name": "env",
    "algorithm": "algo",
    "random_seed": "seed",
    "num_workers": "num_env_runners",
    "lora_r": "lora_rank",
    "precision": "dtype",
    "eval_steps": "eval_interval",
    "save_steps": "checkpoint_interval",
    "save_total_limit": "keep_checkpoints",
}
#: Another library's name -> the keys to set instead, if units or meanings differ.
HINTS: Mapping[str, str] = {
    "batch_size": "tasks_per_iteration (tasks) and group_size (rollouts of each)",
    "train_batch_size": "tasks_per_iteration (tasks) and group_size (rollouts of each)",
    "rollout_batch_size": "tasks_per_iteration (tasks) and group_size (rollouts of each)",
    "per_device_train_batch_size": "tokens_per_microbatch",
    "gradient_accumulation_steps": "tokens_per_microbatch",
    "micro_batch_size": "tokens_per_microbatch",
    "mini_batch_size": "minibatches (optimizer steps per pass)",
    "ppo_mini_batch_size": "minibatches (optimizer steps per pass)",
    "num_train_epochs": "epochs (passes over an iteration's rows) or iterations",
    "max_steps": "iterations (training), or max_turns (an episode)",
    "total_timesteps": "iterations",
    "total_epochs": "iterations",
    "n_steps": "tasks_per_iteration and max_turns",
    "clip_range": "clip_low and clip_high",
    "clip_ratio": "clip_low and clip_high",
    "clip_eps": "clip_low and clip_high",
    "epsilon": "clip_low and clip_high",
    "warmup_steps": "lr_warmup",
    "max_prompt_length": "max_model_len (prompt and response)",
    "max_length": "max_model_len (prompt and response)",
    "max_seq_length": "max_model_len (prompt and response)",
    "num_gpus": "gpus_per_engine and gpus_per_learner",
    "loss_type": "loss_agg_mode",
    "scale_rewards": "advantage_std",
    "bf16": "dtype=bfloat16",
    "gradient_checkpointing": "activation_checkpointing",
    "vf_coef": "critic_lr (the critic has an optimizer of its own)",
    "vf_loss_coeff": "critic_lr (the critic has an optimizer of its own)",
    "value_loss_coef": "critic_lr (the critic has an optimizer of its own)",
}


def canonical(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``data`` with keys instead of their aliases. Raises `InputError`: a key is given by two of its names."""
    found: dict[str, str] = {}
    for name in data:
        key = ALIASES.get(name, name)
        if key in found:
            raise InputError(f"'{found[key]}' and '{name}' are the same key: keep one of them")
        found[key] = name
    return {key: data[name] for key, name in found.items()}


def nearest_key(name: str, valid: Iterable[str]) -> str:
    """Return a hint that names the nearest key, or what replaces another library's name; empty if none is near."""
    return _hint(_nearest(name, valid))


def _nearest(name: str, valid: Iterable[str]) -> str:
    return name if name in HINTS else closest(name, {*valid, *ALIASES, *HINTS})


def _hint(near: str) -> str:
    return f"set {HINTS[near]} instead" if near in HINTS else near and f"did you mean '{near}'?"


def unknown_key(name: str, valid: Iterable[str]) -> InputError:
    """Build the error for an unknown key: what replaces another library's name, the nearest, or those with its word."""
    from rapidfuzz.distance import OSA

    near = _nearest(name, {"env.KEY", *valid})
    if near in HINTS:
        return InputError(f"unknown key '{name}': {_hint(near)}")
    word = closest(name, {word for known in valid for word in known.split("_") if len(word) > 2}, cutoff=1)
    keys = [known for known in sorted(valid) if word in known.split("_")]
    others = f"did you mean {' or '.join(keys)}?" if keys else "`run.py list --keys` shows all."
    hint = _hint(near) or others
    own = "" if near and OSA.distance(name.lower(), near) < 4 else f" A key of the environment is env.{name}"
    return InputError(f"unknown key '{name}': {hint}{own}")
