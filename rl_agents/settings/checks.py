"""What can be wrong with settings before any model or environment is known: ranges, contradictions, idle keys."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rl_agents.errors import InputError
from rl_agents.settings.files import context_window
from rl_agents.settings.options import check_ranges

if TYPE_CHECKING:
    from rl_agents.settings.settings import Settings

#: Keys that only one choice of another key reads.
TRUNCATION_KEYS: Mapping[str, frozenset[str]] = {
    rule: frozenset({*keys, "truncation_after", "truncation_min_turns"})
    for rule, keys in {
        "t3": ("truncation_window", "truncation_stall"),
        "similarity": ("truncation_similarity", "truncation_embedder"),
        "random": ("truncation_beta",),
    }.items()
}
PROMPTING_KEYS: Mapping[str, frozenset[str]] = {
    "react": frozenset({"prompting_shots"}),
    "reflexion": frozenset({"prompting_shots", "prompting_trials"}),
}
JUDGE_KEYS = frozenset({"judge", "judge_url", "judge_model", "judge_key_env", "judge_timeout_s", "judge_retries"})
GENERAL_KEYS = JUDGE_KEYS | {"prs_thresholds"}
PRS_KEYS = GENERAL_KEYS | {"prs_form", "prs_tags", "prs_smoothing", "prs_require_tool_call"}


def validate(settings: Settings) -> None:
    """Check ranges and contradictions that need no model and no environment.

    Raises:
        InputError: the first key that cannot work, and why.
    """
    check_ranges(settings)
    if settings.dual_clip and settings.dual_clip <= 1:
        raise InputError(f"dual_clip={settings.dual_clip}: must be above 1, or 0 for off")
    if settings.temperature == 0:
        raise InputError("temperature=0: training needs a stochastic policy; use eval_temperature=0 for greedy tests")
    bounds = settings.mismatch_bounds
    if len(bounds) not in (0, 2) or sorted(bounds) != bounds:
        raise InputError(f"mismatch_bounds={bounds}: write [low, high], or [] for the method's own")
    if len(settings.betas) != 2:
        raise InputError(f"betas={settings.betas}: two numbers are needed")
    if settings.max_response_tokens >= settings.max_model_len:
        raise InputError(
            f"max_response_tokens={settings.max_response_tokens} leaves no room for a prompt in "
            f"max_model_len={settings.max_model_len}"
        )
    if settings.learner_sharding == "fsdp" and settings.num_learners < 2:
        raise InputError(f"learner_sharding=fsdp needs num_learners of 2 or more, not {settings.num_learners}")
    if settings.learner_sharding == "fsdp" and settings.optimizer == "muon":
        raise InputError("learner_sharding=fsdp with optimizer=muon: Muon needs whole matrices; take optimizer=adamw")
    if settings.tensor_parallel > 1 and settings.engine_mode != "async":
        raise InputError(f"tensor_parallel={settings.tensor_parallel} needs engine_mode=async")
    context_window(settings.context)
    check_effect(settings.explicit, "truncation", settings.truncation, TRUNCATION_KEYS)
    check_effect(settings.explicit, "prompting", settings.prompting, PROMPTING_KEYS)
    if settings.prompting == "reflexion" and settings.truncation != "none":
        raise InputError("prompting=reflexion plays several attempts in one episode; it needs truncation=none")
    check_reward(settings)


def check_reward(settings: Settings) -> None:
    """Check what progressive reward shaping and its judge need."""
    if settings.prs_form == "general" and len(settings.prs_thresholds) != 2:
        raise InputError(f"prs_thresholds={settings.prs_thresholds}: two numbers are needed")
    check_effect(settings.explicit, "reward", settings.reward, {"prs": PRS_KEYS})
    check_effect(settings.explicit, "prs_form", settings.prs_form, {"long": JUDGE_KEYS, "general": GENERAL_KEYS})
    check_effect(settings.explicit, "judge", settings.judge, {"openai": JUDGE_KEYS - {"judge"}})
    if settings.reward == "prs" and settings.prs_form != "short" and settings.judge == "openai":
        for name in ("judge_url", "judge_model"):
            if not getattr(settings, name):
                raise InputError(f"judge=openai needs {name}")


def check_effect(explicit: Iterable[str], switch: str, choice: str, readers: Mapping[str, frozenset[str]]) -> None:
    """Refuse chosen keys that only other choices of ``switch`` read."""
    everything = frozenset().union(*readers.values())
    idle = sorted(set(explicit) & everything - readers.get(choice, frozenset()))
    if idle:
        users = " or ".join(f"{switch}={name}" for name, keys in readers.items() if idle[0] in keys)
        raise InputError(f"key '{idle[0]}' has no effect with {switch}={choice}; it belongs to {users}")
