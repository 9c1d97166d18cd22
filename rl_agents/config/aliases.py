"""Names of keys: those that other libraries use, and those that are no longer here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from rl_agents.errors import InputError

#: Other libraries' word -> ours (TRL, verl, Stable-Baselines3, RLlib, OpenRLHF).
SYNONYMS: Mapping[str, str] = {
    "learning_rate": "lr",
    "actor_lr": "lr",
    "value_lr": "critic_lr",
    "batch_size": "tasks_per_iteration (tasks) and group_size (rollouts of each)",
    "train_batch_size": "tasks_per_iteration (tasks) and group_size (rollouts of each)",
    "rollout_batch_size": "tasks_per_iteration (tasks) and group_size (rollouts of each)",
    "per_device_train_batch_size": "tokens_per_microbatch",
    "gradient_accumulation_steps": "tokens_per_microbatch",
    "micro_batch_size": "tokens_per_microbatch",
    "mini_batch_size": "minibatches (optimiser steps per pass)",
    "ppo_mini_batch_size": "minibatches (optimiser steps per pass)",
    "num_generations": "group_size",
    "num_rollouts": "group_size",
    "n_samples_per_prompt": "group_size",
    "num_epochs": "epochs",
    "num_train_epochs": "epochs (passes over an iteration's rows) or iterations",
    "ppo_epochs": "epochs",
    "num_iterations": "iterations",
    "max_steps": "iterations (training), or max_turns (an episode)",
    "total_timesteps": "iterations",
    "total_epochs": "iterations",
    "n_steps": "tasks_per_iteration and max_turns",
    "horizon": "max_turns",
    "beta": "kl_coef",
    "kl_loss_coef": "kl_coef",
    "init_kl_coef": "kl_in_reward_coef",
    "clip_range": "clip_low and clip_high",
    "clip_ratio": "clip_low and clip_high",
    "clip_eps": "clip_low and clip_high",
    "epsilon": "clip_low and clip_high",
    "epsilon_high": "clip_high",
    "vf_clip_range": "critic_clip",
    "cliprange_value": "critic_clip",
    "ent_coef": "entropy_coef",
    "entropy_coeff": "entropy_coef",
    "gae_lambda": "lam",
    "lambda_": "lam",
    "discount": "gamma",
    "max_grad_norm": "grad_clip",
    "warmup_steps": "lr_warmup",
    "max_new_tokens": "max_response_tokens",
    "max_completion_length": "max_response_tokens",
    "max_response_length": "max_response_tokens",
    "max_prompt_length": "max_model_len (prompt and response)",
    "max_length": "max_model_len (prompt and response)",
    "max_seq_length": "max_model_len (prompt and response)",
    "model_name_or_path": "model",
    "model_path": "model",
    "env_name": "env",
    "algorithm": "algo",
    "random_seed": "seed",
    "num_workers": "num_env_runners",
    "num_gpus": "gpus_per_engine and gpus_per_learner",
    "loss_type": "aggregation",
    "loss_agg_mode": "aggregation",
    "scale_rewards": "advantage_std",
    "lora_r": "lora_rank",
    "precision": "dtype",
    "bf16": "dtype=bfloat16",
    "eval_steps": "eval_interval",
    "save_steps": "checkpoint_interval",
    "save_total_limit": "keep_checkpoints",
}


def unknown_key(name: str, valid: Iterable[str]) -> InputError:
    """Build the error for a key that no run has: ours for a word of another library, else the nearest."""
    if name in SYNONYMS:
        return InputError(f"unknown key '{name}': it is called {SYNONYMS[name]} here")
    choices = sorted({"env.KEY", *valid} - {"env_options"})
    lowered = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    hint = f"did you mean '{lowered[close[0]]}'?" if close else "`run.py list --keys` shows all"
    return InputError(f"unknown key '{name}': {hint}")
