"""Every key of a run, with its default, in one place.

Keys are flat (``--set lr=1e-4``); an environment's own keys are written ``env.KEY``. Each field's
``help`` is what ``run.py list --keys`` and the documentation print.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from rl_agents.errors import InputError, unknown


def key(default: Any, help: str) -> Any:
    """Declare a settings key with its default and its one-line explanation."""
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata={"help": help})
    return field(default=default, metadata={"help": help})


@dataclass
class Settings:
    """The resolved configuration of a run. Read-only once the algorithm is built."""

    # What runs
    algo: str = key("grpo", "algorithm, see `run.py list`")
    env: str = key("guess_numbers", "environment, see `run.py list`")
    env_options: dict[str, Any] = key({}, "the environment's own keys, written env.KEY")
    seed: int = key(0, "seed of the run; every episode's stream derives from (seed, iteration, group, member)")
    iterations: int = key(50, "training iterations")

    # Model
    model: str = key("starter", "Hugging Face model folder, or `starter` for the environment's small model")
    dtype: Literal["float32", "bfloat16"] = key("float32", "weights and activations of learner and engine")
    lora_rank: int = key(0, "rank of LoRA adapters on all linear layers; 0 trains all weights")
    lora_alpha: float = key(16.0, "LoRA scale (alpha / rank multiplies the adapter)")
    gradient_checkpointing: bool = key(False, "recompute activations in the backward pass")

    # Rollout
    tasks_per_iteration: int = key(16, "task instances (groups) per iteration")
    group_size: int = key(8, "rollouts of one task per iteration")
    max_turns: int = key(0, "turn limit of an episode; 0 takes the environment's")
    max_response_tokens: int = key(32, "sampled tokens per turn at most")
    max_model_len: int = key(512, "context length: prompt and response tokens at most")
    temperature: float = key(1.0, "sampling temperature; the learner scores tokens at the same one")
    top_p: float = key(1.0, "nucleus mass")
    context: str = key("append", "`append`: the dialogue grows; `window(n)`: rebuilt from the last n steps")
    env_timeout_s: float = key(60.0, "seconds that one reset or step of an environment may take; 0 is no limit")
    num_env_runners: int = key(1, "env runner actors; each plays many episodes at once")
    sample_timeout_s: float = key(600.0, "seconds that one round of rollouts may take before a runner is replaced")

    # Truncation (T3), in training only
    truncation: Literal["none", "t3", "similarity", "random"] = key(
        "none", "stop episodes whose belief no longer moves: progress rule, repeated questions, or a coin (control)"
    )
    truncation_window: int = key(0, "t3: k, steps without progress that fire it; 0 takes the environment's")
    truncation_stall: Literal["consecutive", "cumulative"] = key(
        "consecutive", "t3: progress resets the count (paper), or not (released CircuitDecoding)"
    )
    truncation_after: Literal["force_answer", "zero", "keep_prefix"] = key(
        "force_answer", "one more turn for an answer; or stop with return 0; or stop and keep the rewards so far"
    )
    truncation_similarity: float = key(0.93, "similarity: alpha, cosine with an earlier question above which it fires")
    truncation_embedder: str = key("ngrams", "similarity: `ngrams`, or a sentence-transformers model folder")
    truncation_beta: float = key(0.1, "random: probability of firing at each step")
    truncation_min_turns: int = key(0, "never truncate before this many turns")

    # Reward
    reward: Literal["environment", "prs"] = key("environment", "the environment's, or progressive reward shaping")
    prs_form: Literal["short", "long", "general"] = key(
        "short", "`short`: answers of a few words; `long`: the judge comes before them; `general`: sums of sigmoids"
    )
    prs_tags: list[str] = field(
        default_factory=lambda: ["think", "answer"],
        metadata={"help": "tags that an episode must hold, each opened and closed, for the format reward"},
    )
    prs_smoothing: float = key(0.0, "added to BLEU's counts above single words; 0 as in the paper")
    prs_require_tool_call: bool = key(False, "an answer without any tool call counts as unparsable")
    prs_thresholds: list[float] = field(
        default_factory=lambda: [1.0, 1.0],
        metadata={"help": "general: what process + format, then the judge, must reach for the next stage to count"},
    )
    judge: Literal["rule", "openai"] = key(
        "rule", "who judges answers: a rule (the reference occurs in the answer), or a model behind the OpenAI API"
    )
    judge_url: str = key("", "openai: address of the server, such as http://localhost:8000/v1")
    judge_model: str = key("", "openai: the model's name there")
    judge_key_env: str = key("", "openai: environment variable that holds the API key; empty for none")
    judge_timeout_s: float = key(60.0, "openai: seconds that one request may take")
    judge_retries: int = key(2, "openai: further attempts after a timeout, a lost connection, or HTTP 429 or 5xx")

    # Engine
    engine: Literal["auto", "vllm", "torch"] = key("auto", "`auto` takes vLLM where it is importable, else torch")
    engine_mode: Literal["inprocess", "async"] = key("inprocess", "vLLM in its actor's process, or AsyncLLM (GPUs)")
    num_engines: int = key(1, "engine actors")
    tensor_parallel: int = key(1, "GPUs per engine (engine_mode=async)")
    kv_cache_gb: float = key(0.5, "KV cache of one CPU engine in GiB; GPUs take what gpu_memory_fraction leaves")
    gpu_memory_fraction: float = key(0.85, "share of a GPU's memory that an engine may take")
    gpus_per_engine: float = key(0.0, "GPUs of one engine actor")
    engine_timeout_s: float = key(120.0, "seconds without an answer before an engine is replaced")

    # Rows and credit
    rows: Literal["merged", "per_step"] = key(
        "merged", "`merged`: consecutive steps whose prompts extend each other share one row"
    )
    gamma: float = key(1.0, "discount")
    lam: float = key(1.0, "lambda of generalised advantage estimation")
    advantage_std: Literal["sample", "population", "none"] = key(
        "sample", "group standard deviation that divides; `none` is Dr.GRPO"
    )
    bootstrap_on_truncation: bool = key(False, "bootstrap the value of an episode cut by a limit (else 0)")
    whiten: bool = key(True, "whiten advantages over the batch: ppo over tokens, steppo over steps")
    group_statistics: Literal["trajectories", "step_rows"] = key(
        "trajectories", "what group statistics count; with `step_rows` long episodes weigh more (verl-agent)"
    )
    leave_one_out: bool = key(False, "compare with the other rollouts of the group only (NeMo-RL)")
    singleton: Literal["zero", "raw"] = key("zero", "advantage in a group of one: 0, or its return (verl)")
    invalid_action_penalty: float = key(
        0.0, "subtracted for an action that cannot be parsed; from step returns after discounting"
    )
    return_at_observation: Literal["skip", "reset"] = key(
        "skip", "reward-to-go across an observation: goes on, or ends there (verl), where only the last step sees it"
    )
    step_norm: Literal["mean", "mean_std"] = key("mean", "step-level groups: divide by their deviation or not")
    gigpo_omega: float = key(1.0, "weight of the step advantage beside the episode advantage")
    gigpo_similarity: float = key(0.0, "text similarity at which two states are one (verl-agent 0.95); 0 is equality")
    hgpo_history: int = key(2, "earlier states in the deepest context (K)")
    hgpo_alpha: float = key(1.0, "exponent that favours deep contexts; 0 weighs all alike")
    hgpo_weight_offset: int = key(1, "weights (k + offset)^alpha: 1 paper, 2 released code")
    hgpo_base: bool = key(False, "the episode advantage joins as one more item of weight 1")
    steppo_credit: Literal["step_gae", "token_gae"] = key("step_gae", "`token_gae` is the ablation without step GAE")

    # Selection and reward shaping
    dynamic_sampling: bool = key(False, "drop tasks whose rollouts agree and play further ones until enough differ")
    dynamic_sampling_metric: Literal["success", "return", "shaped_return"] = key(
        "success", "what must differ within a group; `shaped_return` includes the overlong penalty"
    )
    max_generation_batches: int = key(10, "rounds of rollouts of one iteration at most; 0 is no limit")
    overlong_factor: float = key(0.0, "penalty of a response at the length limit; 0 is off")
    overlong_length: int = key(0, "tokens at which the penalty is full; 0 takes max_response_tokens")
    overlong_cache: int = key(0, "tokens before that limit over which it grows; 0 takes a fifth of it")
    overlong_filtering: bool = key(False, "responses cut at the length limit get no loss")
    vspo_mode: Literal["value", "random", "none"] = key("value", "how tasks that replace uniform ones are drawn")
    vspo_temperature: float = key(0.1, "temperature of the softmax over task values")
    vspo_alpha: float = key(2.0, "bound of the factor alpha - (alpha-1)/N on a task drawn N times")
    vspo_clip: bool = key(True, "off: the factor is N itself")

    # Objective
    clip_low: float = key(0.2, "lower clip range of the importance ratio")
    clip_high: float = key(0.2, "upper clip range of the importance ratio")
    dual_clip: float = key(0.0, "bound c of the dual clip for negative advantages; 0 is off, else > 1")
    aggregation: Literal[
        "token-mean",
        "seq-mean-token-mean",
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "step-mean",
        "step-mean-in-traj",
    ] = key("token-mean", "how token losses become one number, over the global mini-batch")
    loss_length: int = key(0, "length L that divides in seq-mean-token-sum-norm; 0 takes the longest row")
    divide_by_rows: bool = key(True, "seq-mean-token-sum-norm divides by the number of rows too")
    ratio_level: Literal["token", "step", "sequence"] = key("step", "unit of steppo's importance ratio")
    gspo_token: bool = key(False, "gspo's token form, for advantages that vary within a row")
    kl_coef: float = key(0.0, "weight of the KL to the reference (the starting weights) in the loss")
    kl_estimator: Literal["k1", "abs", "k2", "k3", "k3+"] = key("k3", "estimator of that KL")
    kl_in_reward_coef: float = key(0.0, "weight of the KL to the reference in the token rewards")
    kl_in_reward_estimator: Literal["k1", "abs", "k2", "k3"] = key("k1", "estimator of that KL")
    kl_controller: Literal["constant", "adaptive"] = key("constant", "`adaptive` moves kl_in_reward_coef to kl_target")
    kl_target: float = key(0.1, "nats per token that the adaptive controller holds")
    kl_horizon: float = key(10_000.0, "rows over which the coefficient moves by its own size at most")
    entropy_coef: float = key(0.0, "weight of the entropy bonus")
    old_logprobs: Literal["engine", "learner"] = key(
        "engine", "denominator of the ratio: the engine's logprobs, or recomputed by the learner"
    )
    mismatch: Literal["none", "token_tis", "sequence_tis", "seq_mis", "geo_rs", "k3_rs", "icepop", "seq_mask_tis"] = (
        key("none", "correction of engine against learner logprobs; needs old_logprobs=learner")
    )
    mismatch_cap: float = key(0.0, "largest weight of tis and mis (0: 2.0); largest divergence of k3_rs (0: 0.01)")
    mismatch_bounds: list[float] = field(
        default_factory=list,
        metadata={"help": "[low, high] of seq_mis, geo_rs, icepop and seq_mask_tis; [] takes the method's own"},
    )
    mismatch_normalise: bool = key(False, "scale the correction's weights to mean 1")

    # Critic
    critic_lr: float = key(1e-3, "learning rate of the critic")
    critic_clip: float = key(0.5, "clip range of the value loss; 0 is off")
    critic_warmup: int = key(0, "iterations in which only the critic learns")

    # Optimiser
    lr: float = key(3e-4, "learning rate of the policy")
    optimizer: Literal["adamw", "muon"] = key("adamw", "`muon`: torch.optim.Muon on hidden matrices, AdamW elsewhere")
    muon_lr: float = key(0.02, "learning rate of Muon's matrices")
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95], metadata={"help": "AdamW's two decay rates"})
    weight_decay: float = key(0.0, "decoupled weight decay")
    grad_clip: float = key(1.0, "global gradient norm; 0 is off")
    lr_warmup: int = key(0, "optimiser steps of linear warm-up")
    lr_decay: float = key(0.0, "share of the run's optimiser steps, at its end, over which the rate falls linearly")
    epochs: int = key(1, "passes over the rows of an iteration")
    minibatches: int = key(2, "optimiser steps per pass")
    tokens_per_microbatch: int = key(16384, "padded tokens per forward pass; gradients accumulate over micro-batches")
    demonstrations: int = key(8192, "demonstrated episodes that sft learns from, played once")
    num_learners: int = key(0, "learner actors; 0 learns in the driver process")
    gpus_per_learner: float = key(0.0, "GPUs of one learner")

    # Looking and keeping
    eval_interval: int = key(10, "iterations between evaluations on the test tasks; 0 evaluates at start and end")
    eval_episodes: int = key(128, "episodes of an evaluation")
    eval_temperature: float = key(1.0, "sampling temperature of evaluations")
    checkpoint_interval: int = key(1, "iterations between checkpoints; 0 keeps only the last; raise it for big models")
    keep_checkpoints: int = key(3, "checkpoints kept; 0 keeps all")
    save_trajectories: int = key(16, "episodes of each iteration written to trajectories/")

    def __post_init__(self) -> None:
        #: Keys that somebody chose; algorithm defaults do not override them.
        self.explicit: set[str] = set()
        #: Resolved already: resolving again only checks.
        self.complete = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data in declaration order, ``env.KEY`` flattened; `from_dict` is its inverse."""
        data = dataclasses.asdict(self)
        options = data.pop("env_options")
        return {**data, **{f"env.{name}": value for name, value in options.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Settings:
        """Build from plain data.

        Raises:
            InputError: unknown key or a value of the wrong type.
        """
        settings = cls()
        settings.update(data)
        return settings

    @classmethod
    def restored(cls, data: Mapping[str, Any]) -> Settings:
        """Build from a run's config.yaml, which is complete: no later default replaces a value of it."""
        settings = cls()
        settings.set_defaults(data)
        settings.complete = True
        return settings

    def update(self, data: Mapping[str, Any]) -> None:
        """Set keys in place; values are checked against the field's type.

        Raises:
            InputError: unknown key or a value of the wrong type.
        """
        for name, value in data.items():
            if name.startswith("env."):
                self.env_options[name.removeprefix("env.")] = value
            elif name not in FIELD_TYPES or name == "env_options":
                raise unknown("key", name, [*(n for n in FIELD_TYPES if n != "env_options"), "env.KEY"])
            else:
                setattr(self, name, _coerce(name, value, FIELD_TYPES[name]))
            self.explicit.add(name)

    def set_defaults(self, data: Mapping[str, Any]) -> None:
        """Like `update`, for keys that nobody chose; they stay open to later defaults."""
        if self.complete:
            return
        fresh = {name: value for name, value in data.items() if name not in self.explicit}
        chosen = set(self.explicit)
        self.update(fresh)
        self.explicit = chosen

    def validate(self) -> None:
        """Check ranges and contradictions that need no model and no environment.

        Raises:
            InputError: the first key that cannot work, and why.
        """
        for name in POSITIVE:
            if getattr(self, name) < 1:
                raise InputError(f"{name}={getattr(self, name)}: must be at least 1")
        for name in NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise InputError(f"{name}={getattr(self, name)}: must not be negative")
        for name in ABOVE_ZERO:
            if getattr(self, name) <= 0:
                raise InputError(f"{name}={getattr(self, name)}: must be above 0")
        if self.vspo_alpha < 1:
            raise InputError(f"vspo_alpha={self.vspo_alpha}: must be at least 1")
        if self.gigpo_similarity > 1:
            raise InputError(f"gigpo_similarity={self.gigpo_similarity}: must lie in (0, 1], or 0 for equality")
        if self.dual_clip and self.dual_clip <= 1:
            raise InputError(f"dual_clip={self.dual_clip}: must be above 1, or 0 for off")
        if self.temperature == 0:
            raise InputError(
                "temperature=0: training needs a stochastic policy; use eval_temperature=0 for greedy tests"
            )
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p={self.top_p}: must lie in (0, 1]")
        if len(self.mismatch_bounds) not in (0, 2) or sorted(self.mismatch_bounds) != self.mismatch_bounds:
            raise InputError(f"mismatch_bounds={self.mismatch_bounds}: write [low, high], or [] for the method's own")
        if len(self.betas) != 2:
            raise InputError(f"betas={self.betas}: two numbers are needed")
        if self.max_response_tokens >= self.max_model_len:
            raise InputError(
                f"max_response_tokens={self.max_response_tokens} leaves no room for a prompt in "
                f"max_model_len={self.max_model_len}"
            )
        if self.tensor_parallel > 1 and self.engine_mode != "async":
            raise InputError(f"tensor_parallel={self.tensor_parallel} needs engine_mode=async")
        context_window(self.context)
        self._validate_truncation()
        self._validate_reward()

    def _validate_truncation(self) -> None:
        if self.truncation_window < 0 or self.truncation_min_turns < 0:
            raise InputError("truncation_window and truncation_min_turns must not be negative")
        if not -1 <= self.truncation_similarity <= 1:
            raise InputError(f"truncation_similarity={self.truncation_similarity}: a cosine lies in [-1, 1]")
        if not 0 <= self.truncation_beta <= 1:
            raise InputError(f"truncation_beta={self.truncation_beta}: a probability lies in [0, 1]")
        _check_effect(self.explicit, "truncation", self.truncation, TRUNCATION_KEYS)

    def _validate_reward(self) -> None:
        if self.prs_smoothing < 0 or self.judge_retries < 0 or self.judge_timeout_s <= 0:
            raise InputError("prs_smoothing and judge_retries must not be negative, judge_timeout_s must be positive")
        if self.prs_form == "general" and len(self.prs_thresholds) != 2:
            raise InputError(f"prs_thresholds={self.prs_thresholds}: two numbers are needed")
        _check_effect(self.explicit, "reward", self.reward, {"prs": PRS_KEYS})
        _check_effect(self.explicit, "prs_form", self.prs_form, {"long": JUDGE_KEYS, "general": GENERAL_KEYS})
        _check_effect(self.explicit, "judge", self.judge, {"openai": JUDGE_KEYS - {"judge"}})
        if self.reward == "prs" and self.prs_form != "short" and self.judge == "openai":
            for name in ("judge_url", "judge_model"):
                if not getattr(self, name):
                    raise InputError(f"judge=openai needs {name}")


#: Keys that only one choice of another key reads.
TRUNCATION_KEYS: Mapping[str, frozenset[str]] = {
    rule: frozenset({*keys, "truncation_after", "truncation_min_turns"})
    for rule, keys in {
        "t3": ("truncation_window", "truncation_stall"),
        "similarity": ("truncation_similarity", "truncation_embedder"),
        "random": ("truncation_beta",),
    }.items()
}
JUDGE_KEYS = frozenset({"judge", "judge_url", "judge_model", "judge_key_env", "judge_timeout_s", "judge_retries"})
GENERAL_KEYS = JUDGE_KEYS | {"prs_thresholds"}
PRS_KEYS = GENERAL_KEYS | {"prs_form", "prs_tags", "prs_smoothing", "prs_require_tool_call"}


def _check_effect(explicit: Iterable[str], switch: str, choice: str, readers: Mapping[str, frozenset[str]]) -> None:
    """Refuse chosen keys that only other choices of ``switch`` read."""
    everything = frozenset().union(*readers.values())
    idle = sorted(set(explicit) & everything - readers.get(choice, frozenset()))
    if idle:
        users = " or ".join(f"{switch}={name}" for name, keys in readers.items() if idle[0] in keys)
        raise InputError(f"key '{idle[0]}' has no effect with {switch}={choice}; it belongs to {users}")


POSITIVE = (
    "iterations",
    "tasks_per_iteration",
    "group_size",
    "max_response_tokens",
    "epochs",
    "minibatches",
    "num_engines",
    "tensor_parallel",
    "tokens_per_microbatch",
    "eval_episodes",
    "demonstrations",
)
ABOVE_ZERO = ("vspo_temperature", "kl_target", "kl_horizon")
NOT_NEGATIVE = (
    "lr",
    "critic_lr",
    "clip_low",
    "clip_high",
    "kl_coef",
    "kl_in_reward_coef",
    "invalid_action_penalty",
    "gigpo_similarity",
    "hgpo_history",
    "hgpo_weight_offset",
    "max_generation_batches",
    "overlong_factor",
    "overlong_length",
    "overlong_cache",
    "loss_length",
    "mismatch_cap",
    "temperature",
    "max_turns",
    "lora_rank",
    "grad_clip",
    "num_env_runners",
    "num_learners",
    "eval_interval",
    "checkpoint_interval",
    "critic_clip",
    "eval_temperature",
    "keep_checkpoints",
    "save_trajectories",
    "lr_warmup",
    "lr_decay",
)
FIELD_TYPES: dict[str, Any] = typing.get_type_hints(Settings)
HELP: dict[str, str] = {f.name: f.metadata["help"] for f in dataclasses.fields(Settings)}


def context_window(context: str) -> int | None:
    """Return n of ``window(n)``, or None for ``append``.

    Raises:
        InputError: neither of both.
    """
    if context == "append":
        return None
    match = re.fullmatch(r"window\((\d+)\)", context)
    if not match:
        raise InputError(f"context='{context}': valid: append, window(n)")
    return int(match[1])


def _coerce(name: str, value: Any, kind: Any) -> Any:
    """Return ``value`` as ``kind``; numbers that YAML reads as text (1e-4) are accepted."""
    if typing.get_origin(kind) is Literal:
        if value not in typing.get_args(kind):
            raise InputError(f"{name}='{value}': valid: {', '.join(map(str, typing.get_args(kind)))}")
        return value
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{name}='{value}': a list is needed, such as [0.9, 0.95]")
        return [_coerce(name, item, typing.get_args(kind)[0]) for item in value]
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if kind is bool:
        if not isinstance(value, bool):
            raise InputError(f"{name}='{value}': true or false is needed")
        return value
    try:
        if kind is int and (isinstance(value, bool) or float(value) != int(float(value))):
            raise ValueError
        return int(float(value)) if kind is int else kind(value)
    except (TypeError, ValueError):
        needed = {int: "a whole number", float: "a number", str: "text"}[kind]
        raise InputError(f"{name}='{value}': {needed} is needed") from None


def parse_assignments(items: Iterable[str]) -> dict[str, Any]:
    """Parse ``--set key=value`` items; values are read as YAML.

    Raises:
        InputError: an item without ``=`` or a value that is not YAML.
    """
    result: dict[str, Any] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {item}: write it as key=value")
        try:
            result[name.strip()] = yaml.safe_load(text) if text else ""
        except yaml.YAMLError:
            raise InputError(f"--set {item}: the value is not valid YAML") from None
    return result


def load_recipe(path: str) -> dict[str, Any]:
    """Read a recipe file: a flat YAML mapping of keys.

    Raises:
        InputError: missing file, broken YAML (with its line), or not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            data = yaml.safe_load(file)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (yaml.YAMLError, UnicodeDecodeError, IsADirectoryError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f":{mark.line + 1}" if mark else ""
        reason = getattr(error, "problem", None) or "not readable as text"
        raise InputError(f"{path}{where}: broken YAML: {reason}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InputError(f"{path}: a mapping of keys to values is needed, found {type(data).__name__}")
    return {str(name): value for name, value in data.items()}
