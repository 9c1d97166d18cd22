"""The keys of a run, section by section, each with its type, default, range, meaning and needs.

Keys are flat (``--set lr=1e-4``); an environment's own keys are written ``env.KEY``. `run.py list --keys` and the
documentation print the help texts under the first line of each class. An algorithm inherits the sections that it reads.
Keys that only one algorithm reads are declared in its module (`rl_agents.algorithms`).

What contradicts a section's keys stands in its ``rules(run, recipe)``: error message -> whether it applies to the
settings ``run`` of the algorithm ``recipe``. `rl_agents.trainer.resolve` asks those of every run and of the algorithm.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, ClassVar, Literal

from rl_agents.config.options import key, off, on
from rl_agents.errors import InputError
from rl_agents.plugins import ASKED

LossAggMode = Literal[
    "token-mean", "traj-mean-token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm",
    "step-mean", "step-mean-in-traj",
]  # fmt: skip
Estimator = Literal["k1", "abs", "k2", "k3", "k3+"]
Rules = Mapping[str, Any]


def context_window(context: str) -> int | None:
    """Return n of ``window(n)``, else None. Raises `InputError`: not a context."""
    return _context_size(context, "window")


def summary_limit(context: str) -> int | None:
    """Return n of ``summary(n)``, else None. Raises `InputError`: not a context."""
    return _context_size(context, "summary")


def _context_size(context: str, name: str) -> int | None:
    match = re.fullmatch(r"append|(window|summary)\((\d+)\)", context)
    if not match:
        raise InputError(f"context='{context}': valid: append, window(n), summary(n)")
    return int(match[2]) if match[1] == name else None


def _two(values: list[float]) -> str:
    return "" if len(values) == 2 else "two numbers are needed"


def _day(text: str) -> str:
    try:
        date.fromisoformat(text or "2000-01-01")
    except ValueError:
        return "write it as YYYY-MM-DD"
    return ""


@dataclass
class RunKeys:
    """Run"""

    algo: str = key("grpo", "Algorithm; `run.py list algorithms` shows all")
    env: str = key("guess_numbers", "Environment; `run.py list environments` shows all; several as a,b")
    environments: list[dict[str, Any]] = key(
        [], "Several environments, each `env` and its own keys (docs/how-to/several-environments.md)"
    )
    plugins: list[str] = key(
        ASKED, "Your own modules or .py files that register algorithms, environments, rewards, and the like"
    )
    seed: int = key(
        0, "Random seed; each episode's stream derives from (seed, iteration, group, member)", ge=0, le=2**32 - 1
    )
    iterations: int = key(50, "Number of training iterations", ge=1, le=1_000_000_000)


@dataclass(frozen=True)
class EntryKeys:
    """An entry of `environments`, besides the keys of the run that it may set for itself"""

    env: str = key("", "Environment")
    name: str = key("", "Name in metrics and tasks; if unset: `env`")
    weight: float = key(1.0, "Share of the groups, relative to the other weights", gt=0)
    advantages: str = key("", "Algorithm whose advantages its rollouts get; if unset: the run's")


@dataclass
class ModelKeys:
    """Policy model"""

    model: str = key(
        "starter",
        "Model folder, public NAME[@REVISION] (docs/reference/models.md), or `starter`: a small warm-start model",
    )
    starter_iterations: int = key(
        0,
        "Training iterations of the warm-start model; 0: the environment's default",
        ge=0,
        le=1_000_000_000,
        needs=on(model="starter"),
    )
    dtype: Literal["float32", "bfloat16", "auto"] = key(
        "float32",
        "Data type of engines, activations, and frozen weights; trainable weights stay in float32; `auto`: bfloat16 "
        "where the GPU or CPU computes in it, else float32",
    )
    lora_rank: int = key(0, "Rank of the LoRA adapters on all linear layers; 0: train all weights", ge=0)
    lora_alpha: float = key(16.0, "LoRA scale; adapters are multiplied by alpha / rank", gt=0, needs="lora_rank")
    activation_checkpointing: Literal["none", "selective", "full"] = key(
        "none",
        "Recomputation of activations in the backward pass; `selective`: all except matrix products and attention",
    )


@dataclass
class RolloutKeys:
    """Rollouts"""

    tasks_per_iteration: int = key(16, "Number of tasks (groups) per iteration", ge=1)
    group_size: int = key(
        8, "Number of rollouts per task and iteration (G); in tree search: maximum samples per state (G_max)", ge=1
    )
    task_sampling: Literal["uniform", "difficulty"] = key(
        "uniform", "`difficulty`: draw tasks that are solved sometimes more often (docs/how-to/curriculum.md)"
    )
    task_uniform_share: float = key(
        0.2, "Share of groups that visit all tasks in turn", gt=0, le=1, needs=on(task_sampling="difficulty")
    )
    max_turns: int = key(
        0, "Maximum turns per episode, also enforced by the environment; 0: the environment's default", ge=0
    )
    max_response_tokens: int = key(
        32, "Maximum sampled tokens per turn; if unset: the warm-start model's value, or measured", ge=1
    )
    max_model_len: int = key(
        512, "Maximum prompt plus response tokens; if unset: the warm-start model's value, or measured", ge=2
    )
    max_observation_characters: int = key(
        32_000, "Maximum characters of an observation; longer ones lose their middle; 0: no limit", ge=0
    )
    temperature: float = key(
        1.0,
        "Sampling temperature; the learner computes logprobs at the same temperature",
        ge=0,
        check=lambda t: "" if t else "training needs a stochastic policy; use eval_temperature=0 for greedy tests",
    )
    top_p: float = key(1.0, "Probability mass of nucleus sampling", gt=0, le=1)
    context: str = key(
        "append",
        "Prompt of each turn; `append`: the whole dialogue; `window(n)`: rebuilt from the last n steps; `summary(n)`: "
        "beyond n tokens, the policy's own summary replaces the dialogue",
    )
    max_summary_tokens: int = key(
        0, "Maximum sampled tokens of a summary; 0: `max_response_tokens`", ge=0, needs=off(context="append")
    )
    tool_parser: str = key(
        "", "Parser of tool calls (docs/reference/models.md); if unset: inferred from the chat template"
    )
    reasoning_parser: str = key(
        "", "Parser of reasoning (docs/reference/models.md); if unset: inferred from the chat template"
    )
    template_date: str = key(
        "", "Date (YYYY-MM-DD) for chat templates that include one; if unset: the day the run starts", check=_day
    )
    prompting: Literal["direct", "react", "reflexion"] = key(
        "direct",
        "Prompting method; `react`: reasoning before actions; `reflexion`: up to 3 attempts with notes on failures",
    )
    env_timeout_s: float = key(60.0, "Timeout of an environment's reset or step in seconds; 0: no limit", ge=0)
    env_start_timeout_s: float = key(
        1800.0, "Timeout for creating an environment in seconds, including the data it loads; 0: no limit", ge=0
    )
    env_blocking: Literal["auto", "inline", "thread"] = key(
        "auto", "Where environments run; `inline`: in the runner's event loop; `auto`: as the environment declares"
    )
    env_concurrency: int = key(
        0, "Maximum concurrent environments per runner; 0: no limit inline, 256 in threads", ge=0
    )
    max_failed_share: float = key(
        0.5, "Share of episodes with environment or judge errors, over 3 iterations, that stops the run", ge=0, le=1
    )
    num_env_runners: int = key(
        1, "Number of env runner actors, each with many concurrent episodes; 0: in the driver process", ge=0
    )
    sample_timeout_s: float = key(
        600.0, "Seconds without a completed batch before an env runner is replaced", gt=0, needs="num_env_runners"
    )

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        size, search = run.group_size, recipe.source == "search"
        return {
            f"group_size={size}: {recipe.name} compares rollouts of one task, so it needs at least 2":
                recipe.grouped and size < 2,
            "prompting=reflexion runs several attempts in one episode; it needs truncation=none":
                run.prompting == "reflexion" and run.truncation != "none",
            f"context={run.context} does not work with algo {recipe.name}: it compares single actions, and a summary "
            "is none; take context=append or window(n)": summary_limit(run.context) is not None and search,
        }  # fmt: skip


@dataclass
class AsyncKeys:
    """Asynchronous rollouts (docs/explanation/staleness.md)"""

    async_level: int = key(
        0, "Lag k: iteration i is sampled with the weights of iteration i - k, reproducibly; 0: synchronous", ge=0
    )
    stream: bool = key(
        False, "Sample continuously with the newest available weights, within the limit of `max_staleness`"
    )
    max_staleness: int = key(
        2, "Maximum age of a group's oldest step when it is trained on, in iterations", ge=1, needs="stream"
    )

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        mode = "stream" if run.stream else f"async_level={run.async_level}"
        return {
            f"stream with async_level={run.async_level}: the two are mutually exclusive; set one of them":
                run.stream and run.async_level,
            "stream needs num_env_runners of 1 or more: in one process nothing samples while it learns":
                run.stream and not run.num_env_runners,
            f"{mode} does not work with algo {recipe.name}: it chooses states by the results of its last samples":
                recipe.source == "search" and (run.stream or run.async_level),
        }  # fmt: skip


@dataclass
class PoolKeys:
    """Training on recorded sessions"""

    pool: str = key(
        "", "Pool (file, or folder of a run) of recorded sessions to train on; the run samples no training episodes"
    )

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        return {
            f"pool={run.pool}: {recipe.name} samples at states of its own choice and cannot learn from recorded "
            "sessions; methods that compare or value whole episodes can (grpo, steppo, ...), and sft":
                run.pool and recipe.source == "search",
        }  # fmt: skip


T3, SIMILARITY = on(truncation="t3"), on(truncation="similarity")


@dataclass
class TruncationKeys:
    """Truncation of training rollouts (T3)"""

    truncation: str = key(
        "none",
        "Rule that ends unproductive episodes: none, t3, similarity, random, or a plugin's (docs/algorithms/t3.md)",
    )
    truncation_window: int = key(
        0, "Steps without progress (k) that trigger it; 0: the environment's default", ge=0, needs=T3
    )
    truncation_stall: Literal["consecutive", "cumulative"] = key(
        "consecutive",
        "Whether progress resets the count (`consecutive`, paper) or not (`cumulative`)",
        needs=T3,
    )
    truncation_after: Literal["force_answer", "zero", "keep_prefix"] = key(
        "force_answer", "Then: one more turn to answer, return 0, or the rewards so far", needs=off(truncation="none")
    )
    truncation_similarity: float = key(
        0.93,
        "Cosine similarity to an earlier question (alpha) above which an episode is truncated",
        ge=-1,
        le=1,
        needs=SIMILARITY,
    )
    truncation_embedder: str = key(
        "ngrams", "Embedding of questions: `ngrams`, or a sentence-transformers folder", needs=SIMILARITY
    )
    truncation_beta: float = key(
        0.1, "Probability of truncation at each step", ge=0, le=1, needs=on(truncation="random")
    )
    truncation_min_turns: int = key(
        0, "Number of turns before which episodes are never truncated", ge=0, needs=off(truncation="none")
    )

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        idle = {"truncation": "none", "reward": "environment"}
        return {
            f"{name}={getattr(run, name)} does not work with algo {recipe.name}: it rewards single steps and drops "
            f"hopeless states itself; leave {name}={value}": recipe.source == "search" and getattr(run, name) != value
            for name, value in idle.items()
        }


#: Conditions of progressive reward shaping, of its judge, and of a model server.
PRS, JUDGED = on(reward="prs"), on(reward="prs", prs_form=("long", "general"))
JUDGE_SERVER = JUDGED + off(judge="rule")


@dataclass
class RewardKeys:
    """Rewards"""

    #: Retries of a judge request after a timeout, a lost connection, HTTP 429 or 5xx.
    judge_retries: ClassVar[int] = 2

    reward: str = key("environment", "Reward: environment, prs (progressive reward shaping), or a plugin's")
    reward_timeout_s: float = key(
        300.0,
        "Timeout of a plugin's reward function in seconds; of coroutines: without a score of any episode; 0: no limit",
        ge=0,
        needs=off(reward=("environment", "prs")),
    )
    prs_form: Literal["short", "long", "general"] = key(
        "short",
        "Reward form; `short`: short answers; `long`: judge first, then references; `general`: sum of sigmoids",
        needs=PRS,
    )
    prs_tags: list[str] = key(
        ["think", "answer"], "Tags that an episode must open and close to earn the format reward", needs=PRS
    )
    prs_require_tool_call: bool = key(False, "Treat an answer without any tool call as unparsable", needs=PRS)
    prs_thresholds: list[float] = key(
        [1.0, 1.0],
        "Scores that unlock the next stage: process and format, judge",
        needs=on(reward="prs", prs_form="general"),
        check=_two,
    )
    judge: str = key(
        "rule",
        "Judge of answers: `rule`, `openai`, `openai-prs` (docs/algorithms/prs.md), or a plugin's",
        needs=JUDGED,
    )
    judge_url: str = key("", "URL of the judge's server, such as http://localhost:8000/v1", needs=JUDGE_SERVER)
    judge_model: str = key("", "Name of the judge model on its server", needs=JUDGE_SERVER)
    judge_key_env: str = key(
        "", "Environment variable with the judge server's API key; empty: no key", needs=JUDGE_SERVER
    )
    judge_timeout_s: float = key(60.0, "Timeout of one judge request in seconds", gt=0, needs=JUDGE_SERVER)
    judge_concurrency: int = key(16, "Maximum concurrent judge requests", ge=1, le=4096, needs=JUDGE_SERVER)


#: vLLM, or a plugin's engine.
NOT_TORCH = off(engine="torch")


@dataclass
class EngineKeys:
    """Inference engines"""

    engine: str = key(
        "auto",
        "Inference engine: `vllm`, `torch` or a plugin's; `auto`: vLLM, or on CPUs the cheaper one for the model "
        "(docs/how-to/scale.md)",
    )
    engine_mode: Literal["inprocess", "async"] = key(
        "inprocess", "vLLM in its actor's process, or `async`: AsyncLLM in its own processes", needs=NOT_TORCH
    )
    num_engines: int = key(1, "Number of engine actors", ge=1)
    tensor_parallel: int = key(1, "Number of GPUs per engine (tensor parallelism)", ge=1, needs=on(engine_mode="async"))
    kv_cache_gb: float = key(
        0.0,
        "KV cache per vLLM engine in GiB; 0: the remaining GPU memory, or on CPUs 0.5, more if one context needs it",
        ge=0,
        needs=NOT_TORCH,
    )
    gpus_per_engine: float = key(0.0, "GPUs reserved per engine actor; 0: tensor_parallel if there are GPUs", ge=0)
    engine_sleep: int = key(
        0,
        "Sleep level while learners use the same GPU: 1 offloads weights to the CPU, 2 drops them; 0: off",
        ge=0,
        le=2,
        needs=NOT_TORCH,
    )
    engine_timeout_s: float = key(120.0, "Seconds without a response before an engine is replaced", gt=0)
    weight_switch: Literal["wait", "keep"] = key(
        "wait", "New weights are loaded after running requests finish (`wait`), or during responses (`keep`)"
    )
    rollout_nodes: str = key("", "Ray resource of the nodes for engines and env runners; empty: any node")


@dataclass
class DiscountKeys:
    """Discounting"""

    gamma: float = key(1.0, "Discount factor", ge=0, le=1)


@dataclass
class StateKeys:
    """States"""

    state_key: Literal["anchor", "observation"] = key(
        "anchor", "What identifies a state: info['anchor'], or the observation text"
    )
    state_scope: Literal["global", "task"] = key(
        "global", "Where equal state keys denote the same state: across all tasks (paper), or within a task"
    )
    state_decay: float = key(
        1.0, "Decay factor of all state counts per iteration; below 1, data of old policies fades", gt=0, le=1
    )


@dataclass
class SearchKeys(StateKeys):
    """Tree search"""

    branching: Literal["auto", "snapshot", "replay"] = key(
        "auto", "How the search returns to a state: by environment snapshots, or by replaying its actions"
    )
    search_steps: int = key(2200, "Number of sampled actions per iteration, over all tasks", ge=1)
    search_max_finished: int = key(1, "Number of finished paths after which the search leaves a task", ge=1)
    search_backtrack: bool = key(True, "Keep unexpanded siblings on a frontier for backtracking; off: discard them")


@dataclass
class DynamicSamplingKeys:
    """Dynamic sampling"""

    dynamic_sampling: bool = key(
        False, "Drop tasks whose rollouts all have the same return and sample more until enough tasks differ"
    )
    max_generation_batches: int = key(
        10, "Maximum rounds of rollouts per iteration; 0: no limit", ge=0, needs="dynamic_sampling"
    )


@dataclass
class OverlongKeys:
    """Overlong responses"""

    overlong_filtering: bool = key(False, "Exclude responses cut off at the length limit from the loss")
    overlong_factor: float = key(0.0, "Penalty of a response at the length limit; 0: off", ge=0)
    overlong_cache: int = key(
        0, "Tokens before the limit over which the penalty grows; 0: a fifth of it", ge=0, needs="overlong_factor"
    )


@dataclass
class LossKeys:
    """Training samples and loss aggregation"""

    sample_layout: Literal["merged", "per_step"] = key(
        "merged", "Training rows; `merged` joins steps whose prompts extend each other; `per_step`: one row per step"
    )
    loss_agg_mode: LossAggMode = key("token-mean", "How token losses are aggregated, over the global mini-batch")
    loss_length: int = key(
        0, "Normalizing length L in tokens; 0: the longest row", ge=0, needs=on(loss_agg_mode="seq-mean-token-sum-norm")
    )


@dataclass
class ExpertKeys:
    """Imitation during reinforcement learning (the loss component `ce`)"""

    expert_data: str = key("", "Table of dialogues to imitate alongside the method's loss: file, folder, or hub:NAME")
    expert_columns: dict[str, str] = key({}, "Columns of the table as FIELD:COLUMN pairs", needs="expert_data")
    expert_dialogues: int = key(16, "Number of dialogues per update", ge=1, needs="expert_data")
    ce_coef: float = key(0.1, "Weight of the dialogues' mean token loss", gt=0, needs="expert_data")
    ce_decay: float = key(0.0, "Share of the run in which `ce_coef` falls to 0", ge=0, le=1, needs="expert_data")


#: Condition under which there is a teacher, and the value of ``teacher`` with which the policy is its own.
TAUGHT, POLICY_AS_TEACHER = on("teacher", "teacher_url"), "policy"


@dataclass
class TeacherKeys:
    """Teacher, which scores the sampled tokens (docs/algorithms/distill.md)"""

    teacher: str = key("", "Model folder, public NAME[@REVISION], or `policy`: the policy itself, reading hints")
    teacher_url: str = key("", "URL of a server with the teacher that returns prompt log-probabilities, such as vLLM's")
    teacher_model: str = key("", "Name of the teacher on its server", needs="teacher_url")
    teacher_key_env: str = key("", "Environment variable with its API key; empty: no key", needs="teacher_url")
    teacher_kl: Literal["sampled", "full"] = key("sampled", "KL of sampled tokens, or of all words", needs=TAUGHT)
    ref_kl_coef: float = key(0.0, "Weight in the loss of the KL divergence from the teacher", ge=0, needs=TAUGHT)

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        distill, full, coefficient = recipe.teacher, run.teacher_kl == "full", run.ref_kl_coef
        url, taught = run.teacher_url, run.teacher or run.teacher_url
        return {
            f"algo {recipe.name} needs a teacher: set teacher=DIR, or teacher_url=URL of a server":
                distill and not taught,
            "teacher and teacher_url: set one of them": run.teacher and url,
            f"a teacher has no effect on algo {recipe.name} without ref_kl_coef":
                taught and not (distill or coefficient),
            "teacher_kl=full needs teacher=DIR, and ref_kl_coef above 0": full and (url or not coefficient),
            f"ref_kl_coef with algo {recipe.name} counts the KL twice": distill and coefficient and not full,
            f"temperature={run.temperature:g}: the log-probabilities of teacher_url are those of temperature=1":
                url and run.temperature != 1,
        }  # fmt: skip


@dataclass
class PolicyGradientKeys:
    """Policy gradient: clipping, KL, entropy, and rollout correction"""

    clip_low: float = key(0.2, "Lower clip range of the importance ratio", ge=0)
    clip_high: float = key(0.2, "Upper clip range of the importance ratio", ge=0)
    dual_clip: float = key(
        0.0, "Maximum ratio where the advantage is negative (dual clip; verl: 3); 0: no limit", gt=1, also=0
    )
    invalid_action_penalty: float = key(
        0.0, "Penalty of an action that cannot be parsed, subtracted from reward or return (docs/algorithms)", ge=0
    )
    kl_coef: float = key(0.0, "Weight in the loss of the KL divergence from the reference (the initial weights)", ge=0)
    kl_estimator: Estimator = key(
        "k3", "Estimator of the KL divergence in the loss", needs=on("kl_coef", "ref_kl_coef")
    )
    kl_in_reward_coef: float = key(
        0.0, "Weight in the token rewards of the KL divergence from the reference (the initial weights)", ge=0
    )
    entropy_coef: float = key(0.0, "Weight of the entropy bonus", ge=0)
    old_logprobs: Literal["engine", "learner"] = key(
        "engine", "Denominator of the importance ratio: logprobs from the engine, or recomputed by the learner"
    )
    rollout_correction: Literal["none", "token_tis", "step_tis", "sequence_tis", "seq_mis", "geo_rs", "icepop"] = key(
        "none", "Correction of the mismatch between engine and learner logprobs; requires old_logprobs=learner"
    )
    rollout_correction_cap: float = key(
        0.0,
        "Maximum weight; 0: 2.0",
        ge=0,
        needs=on(rollout_correction=("token_tis", "step_tis", "sequence_tis", "seq_mis")),
    )
    rollout_correction_bounds: list[float] = key(
        [],
        "Bounds [low, high] of the correction; []: the method's defaults",
        ge=0,
        needs=on(rollout_correction=("seq_mis", "geo_rs", "icepop")),
        check=lambda b: "" if len(b) in (0, 2) and sorted(b) == b else "write [low, high], or [] for the method's own",
    )

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        correction, nucleus = run.rollout_correction, run.top_p < 1 and not run.complete
        return {
            f"kl_coef={run.kl_coef} and kl_in_reward_coef={run.kl_in_reward_coef} count the KL twice: set one of them "
            "to 0": run.kl_coef and run.kl_in_reward_coef,
            f"rollout_correction={correction} needs old_logprobs=learner: with the engine's logprobs as denominator "
            "the ratio already contains the correction": correction != "none" and run.old_logprobs != "learner",
            f"top_p={run.top_p:g} needs old_logprobs=learner: the engine's logprobs are those of the nucleus, the "
            "learner scores all tokens, so ratios would be wrong before the first step":
                nucleus and run.old_logprobs == "engine",
            f"top_p={run.top_p:g} does not work with rollout_correction={correction}: the engine's logprobs are those "
            "of the nucleus, the learner's of all tokens, so every weight would contain the mass of the nucleus; set "
            "top_p=1 or rollout_correction=none": nucleus and correction != "none",
        }  # fmt: skip


@dataclass
class CriticKeys:
    """Critic"""

    critic_warmup: int = key(0, "Number of initial iterations that train only the critic", ge=0)
    critic_lr: float = key(1e-3, "Learning rate of the critic", ge=0)
    cliprange_value: float = key(0.5, "Clip range of the value loss; 0: off", ge=0)


@dataclass
class DemonstrationKeys:
    """Supervised fine-tuning"""

    demonstrations: int = key(
        8192, "Number of demonstration episodes, generated once by the environment's scripted player", ge=1
    )
    demonstration_data: str = key(
        "", "Table of dialogues to train on instead of scripted demonstrations: file, folder, or hub:NAME"
    )
    demonstration_columns: dict[str, str] = key(
        {}, "Columns of the table as FIELD:COLUMN pairs, such as messages:dialogue", needs="demonstration_data"
    )
    pool_min_return: float | None = key(
        None, "Minimum return of the pool's sessions to train on; if unset: all solved sessions", needs="pool"
    )


@dataclass
class OptimizerKeys:
    """Optimizer and learners"""

    lr: float = key(3e-4, "Learning rate of the policy", ge=0)
    optimizer: Literal["adamw", "muon"] = key(
        "adamw", "Optimizer; `muon`: torch.optim.Muon for hidden weight matrices, AdamW for all other weights"
    )
    muon_lr: float = key(0.02, "Learning rate of the matrices that Muon updates", ge=0, needs=on(optimizer="muon"))
    betas: list[float] = key([0.9, 0.95], "AdamW's decay rates [beta1, beta2]", ge=0, lt=1, check=_two)
    weight_decay: float = key(0.0, "Decoupled weight decay", ge=0)
    grad_clip: float = key(1.0, "Maximum global gradient norm; 0: no clipping", ge=0)
    lr_warmup: int = key(0, "Number of optimizer steps of linear learning-rate warm-up", ge=0)
    lr_decay: float = key(
        0.0, "Final share of the run's iterations over which learning rates fall to 2%; 0: off", ge=0, le=1
    )
    epochs: int = key(1, "Number of passes over each iteration's training rows", ge=1)
    minibatches: int = key(2, "Number of optimizer steps per pass", ge=1)
    tokens_per_microbatch: int = key(
        16384, "Maximum tokens per forward pass, padding included; gradients accumulate over micro-batches", ge=1
    )
    prefix_sharing: bool = key(
        False, "Run the forward pass of common prefixes once, where that is faster; gradients are the same"
    )
    sequence_packing: bool = key(
        False, "Concatenate rows without a common prefix instead of padding them; gradients are the same"
    )
    num_learners: int = key(0, "Number of learner actors; 0: train in the driver process", ge=0)
    gpus_per_learner: float = key(0.0, "Number of GPUs per learner", ge=0)
    learner_sharding: Literal["none", "fsdp"] = key(
        "none", "Sharding of weights, gradients, optimizer state across learners; `fsdp`: FSDP2", needs="num_learners"
    )
    learner_nodes: str = key("", "Ray resource of the nodes for learners; empty: any node", needs="num_learners")
    learner_timeout_s: float = key(
        1800.0, "Seconds without a response before a learner actor counts as lost", gt=0, needs="num_learners"
    )

    @staticmethod
    def rules(run: Any, recipe: Any) -> Rules:
        sharded = run.learner_sharding == "fsdp"
        return {
            f"learner_sharding=fsdp needs num_learners of 2 or more, not {run.num_learners}":
                sharded and run.num_learners < 2,
            "learner_sharding=fsdp with optimizer=muon: Muon needs whole matrices; take optimizer=adamw":
                sharded and run.optimizer == "muon",
        }  # fmt: skip


@dataclass
class ReportKeys:
    """Evaluation, checkpoints, and logging"""

    eval_interval: int = key(
        10, "Number of iterations between evaluations on the test tasks; 0: only at the start and the end", ge=0
    )
    eval_episodes: int = key(128, "Number of episodes per evaluation; 0: no evaluation", ge=0)
    eval_temperature: float = key(1.0, "Sampling temperature of evaluations; 0: greedy", ge=0)
    checkpoint_interval: int = key(
        1, "Number of iterations between checkpoints, higher for large models; 0: only at the end", ge=0
    )
    keep_checkpoints: int = key(3, "Number of newest checkpoints to keep, in addition to the best; 0: all", ge=0)
    save_pool: bool = key(
        True, "Write every step to pool.sqlite (docs/reference/pool.md); a resumed run does not sample them again"
    )
    tasks_changed: Literal["refuse", "accept"] = key(
        "refuse",
        "Resuming with other tasks: an error, or continue; evaluations before and after then have different tasks",
    )
    collapse_monitor: Literal["warn", "stop", "off"] = key("warn", "Action when success drops well below its start")
    trackers: list[str] = key(
        [], "Trackers in addition to TensorBoard: wandb, mlflow, trackio, or a plugin's (docs/how-to/inspect-a-run.md)"
    )
    tracker_project: str = key("rl_agents", "Project or experiment name in the trackers", needs="trackers")
    save_trajectories: int = key(16, "Number of episodes per iteration written to trajectories/", ge=0)
