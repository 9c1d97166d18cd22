"""Convert config.yaml of the version before to present keys, so that its runs can continue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_agents.config.aliases import canonical
from rl_agents.errors import InputError

#: Removed keys; a run can continue with any value of them.
RETIRED = frozenset({
    "guard_episodes", "guard_z", "judge_retries", "keep_best", "max_learner_restarts", "weight_transfer",
})  # fmt: skip
#: Removed keys, with the only value with which a run can continue: the default.
DROPPED: Mapping[str, Any] = {
    "dual_clip": 0.0,
    "dynamic_sampling_metric": "success",
    "engine_quantization": "none",
    "gspo_token": False,
    "hgpo_weight_offset": 1,
    "kl_in_reward_estimator": "k1",
    "pool_top_share": 0.0,
    "prompting_shots": 0,
    "prompting_trials": 3,
    "prs_smoothing": 0.0,
}
#: Removed keys of environments, with the only value with which a run can continue: the default.
DROPPED_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "guess_numbers": {"malformed": "retry", "subgroups": "all"},
    "circuit_decoding": {"malformed": "retry", "sizes": "one", "reward": "exact"},
    "situation_puzzles": {
        "malformed": "retry", "judge_retries": 2, "bad_data": "error", "match": 0.5, "progress": "informative",
    },
    "preference_estimation": {"malformed": "retry", "reward": "binary"},
    "movie_recommendation": {
        "malformed": "retry", "movement_window": 4, "movement_threshold": 0.28, "progress": "similarity",
    },
    "alfworld": {"backend": "native", "textworld_python": "", "skip_bad_games": False},
    "webshop": {"hold_out_eval": False},
    "multihop_qa": {
        "malformed": "retry", "max_calls": 4, "passage_characters": 1500, "query_prefix": "", "passage_prefix": "",
    },
    "long_form_qa": {
        "malformed": "retry", "max_calls": 4, "judge_retries": 2, "query_prefix": "", "passage_prefix": "",
        "test_share": 0.1, "max_sentences": 12,
    },
    "paper_search": {
        "malformed": "retry", "citing": 30, "references": 99, "abstract_characters": 0, "min_score": 0.01,
        "penalty": 0.5, "selector_timeout_s": 30.0, "selector_retries": 2, "query_prefix": "", "passage_prefix": "",
        "bad_data": "error", "listed": 40, "threshold": 0.5, "success_f1": 0.8, "selector_threads": 16,
    },
    "pivot": {"edit_credit": "binary"},
    "mcp": {"malformed": "retry", "max_calls": 4, "system": "", "start_timeout_s": 30.0},
}  # fmt: skip
#: Sizes of movie_recommendation's sessions: the removed keys, and the present names of their values.
SESSION_KEYS = ("attributes", "seen", "unseen", "score_levels", "weight_levels", "sampling")
SESSION_SIZES = {(5, 10, 10, 11, 11, "uniform"): "paper", (3, 5, 4, 5, 3, "balanced"): "small"}


def migrated(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's configuration with present keys.

    Raises:
        InputError: a removed key has a value that is no longer supported, or the algorithm has changed.
    """
    _check(data, {name: (value,) for name, value in DROPPED.items()})
    algo = data.get("algo", "grpo")
    if algo not in ("reinforce++-baseline", "gigpo", "hgpo"):  # which never read it
        _check(data, {"singleton": ("raw" if algo == "rloo" else "zero",)})
    for name in ("rollout_correction", "mismatch"):
        if data.get(name) in ("k3_rs", "seq_mask_tis"):
            raise _refusal(name, data[name], ("another correction",))
    gone = RETIRED | DROPPED.keys() | {"singleton"}
    found = todays_options({name: value for name, value in data.items() if name not in gone})
    found = canonical(found, note=False)
    if found.get("collapse_monitor") == "restore":  # a removed value, which also warned
        found["collapse_monitor"] = "warn"
    if found.get("sibling_norm") == "update":  # a value that only 3spo read
        if algo == "3spo":
            raise InputError(
                "config.yaml: a run of an earlier version's 3spo, which has changed since, cannot be resumed; "
                "train its model further with --algo 3spo --model RUN/checkpoints/ITERATION/hf"
            )
        del found["sibling_norm"]
    return found


def todays_options(data: Mapping[str, Any]) -> dict[str, Any]:
    """Omit removed keys of environments, in a run's configuration or in the settings that a model was made for.

    Raises:
        InputError: a removed key has a value that is no longer supported.
    """
    env = str(data.get("env", "guess_numbers"))
    dropped = DROPPED_OPTIONS.get(env, {})
    if env.startswith("gymnasium:") or data.get("env.instructions") == "":  # or a plugin's class
        dropped = {**dropped, "instructions": ""}
    gone = {f"env.{name}": value for name, value in dropped.items()}
    _check(data, {name: (value,) for name, value in gone.items()})
    found = {name: value for name, value in data.items() if name not in gone}
    if env == "movie_recommendation" and "env.size" not in found:
        paper = next(iter(SESSION_SIZES))
        keys = [f"env.{name}" for name in SESSION_KEYS]
        size = tuple(found.pop(key, usual) for key, usual in zip(keys, paper, strict=True))
        if size not in SESSION_SIZES:
            raise InputError(f"config.yaml: sessions of size {size} were removed, so this run cannot continue")
        found["env.size"] = SESSION_SIZES[size]
    return found


def _check(data: Mapping[str, Any], kept: Mapping[str, tuple[Any, ...]]) -> None:
    for name, values in kept.items():
        if data.get(name, values[0]) not in values:
            raise _refusal(name, data[name], values)


def _refusal(name: str, value: Any, kept: tuple[Any, ...]) -> InputError:
    wanted = " or ".join(str(each) for each in kept)
    return InputError(f"config.yaml: {name}={value} was removed, so this run cannot continue; only {name}={wanted} can")
