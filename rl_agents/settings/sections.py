"""Every key of a run with its type, default, range and meaning, section by section.

Keys are flat (``--set lr=1e-4``); an environment's own keys are written ``env.KEY``. The help text is what
``run.py list --keys`` and the documentation print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rl_agents.settings.options import key


@dataclass
class RunKeys:
    """What runs."""

    algo: str = key("grpo", "algorithm, see `run.py list`")
    env: str = key("guess_numbers", "environment, see `run.py list`")
    env_options: dict[str, Any] = key({}, "the environment's own keys, written env.KEY")
    seed: int = key(0, "seed of the run; every episode's stream derives from (seed, iteration, group, member)")
    iterations: int = key(50, "training iterations", at_least=1)


@dataclass
class ModelKeys:
    """The policy."""

    model: str = key("starter", "Hugging Face model folder, or `starter` for the environment's small model")
    dtype: Literal["float32", "bfloat16"] = key(
        "float32", "of engines, activations and frozen weights; weights that are trained are always kept in float32"
    )
    lora_rank: int = key(0, "rank of LoRA adapters on all linear layers; 0 trains all weights", at_least=0)
    lora_alpha: float = key(16.0, "LoRA scale (alpha / rank multiplies the adapter)")
    gradient_checkpointing: bool = key(False, "recompute activations in the backward pass")


@dataclass
class RolloutKeys:
    """How episodes are played."""

    tasks_per_iteration: int = key(16, "task instances (groups) per iteration", at_least=1)
    group_size: int = key(8, "rollouts of one task per iteration; 3spo: of one state at most (G_max)", at_least=1)
    max_turns: int = key(0, "turn limit of an episode; 0 takes the environment's", at_least=0)
    max_response_tokens: int = key(32, "sampled tokens per turn at most", at_least=1)
    max_model_len: int = key(512, "context length: prompt and response tokens at most")
    temperature: float = key(1.0, "sampling temperature; the learner scores tokens at the same one", at_least=0)
    top_p: float = key(1.0, "nucleus mass", above=0, at_most=1)
    context: str = key("append", "`append`: the dialogue grows; `window(n)`: rebuilt from the last n steps")
    prompting: Literal["direct", "react", "reflexion"] = key(
        "direct", "`react`: thoughts before actions; `reflexion`: further attempts with notes on the failed ones"
    )
    prompting_shots: int = key(0, "react, reflexion: solved examples before the task", at_least=0)
    prompting_trials: int = key(3, "reflexion: attempts at a task", at_least=1)
    env_timeout_s: float = key(60.0, "seconds that one reset or step of an environment may take; 0 is no limit")
    num_env_runners: int = key(1, "env runner actors; each plays many episodes at once", at_least=0)
    sample_timeout_s: float = key(600.0, "seconds that one round of rollouts may take before a runner is replaced")


@dataclass
class TruncationKeys:
    """Truncation (T3), in training only."""

    truncation: Literal["none", "t3", "similarity", "random"] = key(
        "none", "stop episodes whose belief no longer moves: progress rule, repeated questions, or a coin (control)"
    )
    truncation_window: int = key(0, "t3: k, steps without progress that fire it; 0 takes the environment's", at_least=0)
    truncation_stall: Literal["consecutive", "cumulative"] = key(
        "consecutive", "t3: progress resets the count (paper), or not (released CircuitDecoding)"
    )
    truncation_after: Literal["force_answer", "zero", "keep_prefix"] = key(
        "force_answer", "one more turn for an answer; or stop with return 0; or stop and keep the rewards so far"
    )
    truncation_similarity: float = key(
        0.93, "similarity: alpha, cosine with an earlier question above which it fires", at_least=-1, at_most=1
    )
    truncation_embedder: str = key("ngrams", "similarity: `ngrams`, or a sentence-transformers model folder")
    truncation_beta: float = key(0.1, "random: probability of firing at each step", at_least=0, at_most=1)
    truncation_min_turns: int = key(0, "never truncate before this many turns", at_least=0)


@dataclass
class RewardKeys:
    """What an episode earns."""

    reward: Literal["environment", "prs"] = key("environment", "the environment's, or progressive reward shaping")
    prs_form: Literal["short", "long", "general"] = key(
        "short", "`short`: answers of a few words; `long`: the judge comes before them; `general`: sums of sigmoids"
    )
    prs_tags: list[str] = key(
        ["think", "answer"],
        "tags of the prompt that an episode must hold, opened and closed, for the format reward",
    )
    prs_smoothing: float = key(0.0, "added to BLEU's counts above single words; 0 as in the paper", at_least=0)
    prs_require_tool_call: bool = key(False, "an answer without any tool call counts as unparsable")
    prs_thresholds: list[float] = key(
        [1.0, 1.0], "general: what process + format, then the judge, must reach for the next stage to count"
    )
    judge: Literal["rule", "openai"] = key(
        "rule", "who judges answers: a rule (docs/algorithms/prs.md), or a model behind the OpenAI API"
    )
    judge_url: str = key("", "openai: address of the server, such as http://localhost:8000/v1")
    judge_model: str = key("", "openai: the model's name there")
    judge_key_env: str = key("", "openai: environment variable that holds the API key; empty for none")
    judge_timeout_s: float = key(60.0, "openai: seconds that one request may take", above=0)
    judge_retries: int = key(
        2, "openai: further attempts after a timeout, a lost connection, or HTTP 429 or 5xx", at_least=0
    )


@dataclass
class EngineKeys:
    """What samples tokens."""

    engine: Literal["auto", "vllm", "torch"] = key("auto", "`auto` takes vLLM where it is importable, else torch")
    engine_mode: Literal["inprocess", "async"] = key("inprocess", "vLLM in its actor's process, or AsyncLLM (GPUs)")
    num_engines: int = key(1, "engine actors", at_least=1)
    tensor_parallel: int = key(1, "GPUs per engine (engine_mode=async)", at_least=1)
    kv_cache_gb: float = key(0.5, "KV cache of one CPU engine in GiB; GPUs take what gpu_memory_fraction leaves")
    gpu_memory_fraction: float = key(0.85, "share of a GPU's memory that an engine may take")
    gpus_per_engine: float = key(0.0, "GPUs of one engine actor")
    engine_timeout_s: float = key(120.0, "seconds without an answer before an engine is replaced")
    rollout_nodes: str = key("", "Ray resource of the nodes where engines and env runners go; empty: anywhere")


@dataclass
class CreditKeys:
    """Rows, returns and advantages."""

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
        0.0, "subtracted for an action that cannot be parsed; from step returns after discounting", at_least=0
    )
    return_at_observation: Literal["skip", "reset"] = key(
        "skip", "reward-to-go across an observation: goes on, or ends there (verl), where only the last step sees it"
    )
    step_norm: Literal["mean", "mean_std"] = key("mean", "step-level groups: divide by their deviation or not")
    gigpo_omega: float = key(1.0, "weight of the step advantage beside the episode advantage")
    gigpo_similarity: float = key(
        0.0, "text similarity at which two states are one (verl-agent 0.95); 0 is equality", at_least=0, at_most=1
    )
    hgpo_history: int = key(2, "earlier states in the deepest context (K)", at_least=0)
    hgpo_alpha: float = key(1.0, "exponent that favours deep contexts; 0 weighs all alike")
    hgpo_weight_offset: int = key(1, "weights (k + offset)^alpha: 1 paper, 2 released code", at_least=0)
    hgpo_base: bool = key(False, "the episode advantage joins as one more item of weight 1")
    steppo_credit: Literal["step_gae", "token_gae"] = key("step_gae", "`token_gae` is the ablation without step GAE")


@dataclass
class SearchKeys:
    """3spo: where it branches, what it counts, what a step earns."""

    branching: Literal["auto", "snapshot", "replay"] = key(
        "auto", "how a state is reached again: the environment's own copy of it, or its actions replayed"
    )
    search_steps: int = key(512, "sampled actions of one iteration, over all tasks", at_least=1)
    search_batch_groups: int = key(
        0, "states per optimiser step at most; 0: one of every task that is explored; 1: after each state", at_least=0
    )
    search_update: Literal["step", "task"] = key(
        "step",
        "a state's siblings are learned from at once (paper), or, with all that was found out, when their task "
        "is left, once an iteration",
    )
    search_weights: Literal["equal", "reach"] = key(
        "equal", "states and trajectories all weigh the same (paper), or as often as the policy comes their way"
    )
    search_max_finished: int = key(32, "finished trajectories after which a task is left", at_least=1)
    search_max_steps: int = key(0, "sampled actions after which a task is left; 0 is no limit", at_least=0)
    search_rollouts: Literal["adaptive", "uniform"] = key("adaptive", "n(s) by score, or group_size everywhere")
    search_backtrack: bool = key(True, "siblings that are not followed wait on a frontier; off: they are forgotten")
    search_order: Literal["ranked", "sampled"] = key(
        "ranked", "which child is next: the best (paper), or the one sampled first, as the policy itself would go on"
    )
    search_skip: Literal["search", "siblings", "none"] = key(
        "search", "actions not followed: executed at that state before in this search; equal siblings; none"
    )
    search_closed: Literal["dropped", "failed"] = key(
        "dropped", "a path that comes to a closed state is not counted (paper), or counts as a failure"
    )
    score_preset: Literal["paper", "graded"] = key("paper", "alpha 50 (n is 0, 1 or group_size), or 1 (all between)")
    score_alpha: float = key(0.0, "alpha of the annealing alpha*ln(t); 0 takes the preset's", at_least=0)
    score_xi: float = key(10.0, "failures from which a state may close", at_least=0)
    score_zeta: float = key(0.1, "success rate that keeps it open", at_least=0, at_most=1)
    score_clock: Literal["depth", "global"] = key("depth", "t: depth in the trajectory, or finished trajectories")
    score_difference: Literal["gated", "open", "value", "none"] = key(
        "gated", "progress: S as in the paper; S without its gate; success rates in place of S; none"
    )
    search_baseline: Literal["siblings", "score"] = key(
        "siblings",
        "what an action is compared with: its siblings, or (score_difference=value) its state's success rate",
    )
    novelty: Literal["changed", "unseen", "first_in_trajectory", "none"] = key(
        "changed", "what is novel: another state than before; one never counted; one not on the path; nothing"
    )
    novelty_decay: float = key(0.1, "gamma_w: omega(N) = exp(-gamma_w*N)/2 weighs novelty", at_least=0)
    novelty_fixed: float = key(0.0, "omega as a constant (ablation: 0.25); 0 is omega(N)", at_least=0, at_most=0.5)
    success_weight: float = key(0.5, "weight of terminal success in a step's reward", at_least=0)
    state_name: Literal["anchor", "observation"] = key("anchor", "what names a state: info['anchor'], or what is shown")
    state_scope: Literal["global", "task"] = key("global", "equal states of different tasks are one (paper), or not")
    state_depth: bool = key(False, "the depth is part of a state's name, where its worth depends on the turns left")
    state_normaliser: Literal["none", "whitespace", "digits"] = key(
        "none", "near-equal states are one: blanks collapse; numbers are all alike, too"
    )
    state_value: Literal["counts", "chain"] = key(
        "counts", "p of a state: share of solved trajectories (paper), or its value in the chain of all sampled steps"
    )
    state_count: Literal["trajectory", "visit"] = key("trajectory", "a state counts once per trajectory, or per visit")
    state_terminal: Literal["counted", "ignored"] = key(
        "counted", "terminal states are counted and a solved one has S = 0; or neither (released code)"
    )
    state_decay: float = key(
        1.0, "factor on all counts per iteration, below 1 to forget old policies", above=0, at_most=1
    )
    max_states: int = key(100_000, "states kept; beyond, those least recently counted are forgotten", at_least=1)


@dataclass
class SelectionKeys:
    """Which episodes are learned from."""

    dynamic_sampling: bool = key(False, "drop tasks whose rollouts agree and play further ones until enough differ")
    dynamic_sampling_metric: Literal["success", "return", "shaped_return"] = key(
        "success", "what must differ within a group; `shaped_return` includes the overlong penalty"
    )
    max_generation_batches: int = key(10, "rounds of rollouts of one iteration at most; 0 is no limit", at_least=0)
    overlong_factor: float = key(0.0, "penalty of a response at the length limit; 0 is off", at_least=0)
    overlong_length: int = key(0, "tokens at which the penalty is full; 0 takes max_response_tokens", at_least=0)
    overlong_cache: int = key(0, "tokens before that limit over which it grows; 0 takes a fifth of it", at_least=0)
    overlong_filtering: bool = key(False, "responses cut at the length limit get no loss")
    vspo_mode: Literal["value", "random", "none"] = key("value", "how tasks that replace uniform ones are drawn")
    vspo_temperature: float = key(0.1, "temperature of the softmax over task values", above=0)
    vspo_alpha: float = key(2.0, "bound of the factor alpha - (alpha-1)/N on a task drawn N times", at_least=1)
    vspo_clip: bool = key(True, "off: the factor is N itself")


@dataclass
class ObjectiveKeys:
    """The loss."""

    clip_low: float = key(0.2, "lower clip range of the importance ratio", at_least=0)
    clip_high: float = key(0.2, "upper clip range of the importance ratio", at_least=0)
    dual_clip: float = key(0.0, "bound c of the dual clip for negative advantages; 0 is off, else > 1")
    aggregation: Literal[
        "token-mean",
        "seq-mean-token-mean",
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "step-mean",
        "step-mean-in-traj",
    ] = key("token-mean", "how token losses become one number, over the global mini-batch")
    loss_length: int = key(0, "length L that divides in seq-mean-token-sum-norm; 0 takes the longest row", at_least=0)
    divide_by_rows: bool = key(True, "seq-mean-token-sum-norm divides by the number of rows too")
    ratio_level: Literal["token", "step", "sequence"] = key("step", "unit of steppo's importance ratio")
    gspo_token: bool = key(False, "gspo's token form, for advantages that vary within a row")
    kl_coef: float = key(0.0, "weight of the KL to the reference (the starting weights) in the loss", at_least=0)
    kl_estimator: Literal["k1", "abs", "k2", "k3", "k3+"] = key("k3", "estimator of that KL")
    kl_in_reward_coef: float = key(0.0, "weight of the KL to the reference in the token rewards", at_least=0)
    kl_in_reward_estimator: Literal["k1", "abs", "k2", "k3"] = key("k1", "estimator of that KL")
    kl_controller: Literal["constant", "adaptive"] = key("constant", "`adaptive` moves kl_in_reward_coef to kl_target")
    kl_target: float = key(0.1, "nats per token that the adaptive controller holds", above=0)
    kl_horizon: float = key(10_000.0, "rows over which the coefficient moves by its own size at most", above=0)
    entropy_coef: float = key(0.0, "weight of the entropy bonus")
    old_logprobs: Literal["engine", "learner"] = key(
        "engine", "denominator of the ratio: the engine's logprobs, or recomputed by the learner"
    )
    mismatch: Literal["none", "token_tis", "sequence_tis", "seq_mis", "geo_rs", "k3_rs", "icepop", "seq_mask_tis"] = (
        key("none", "correction of engine against learner logprobs; needs old_logprobs=learner")
    )
    mismatch_cap: float = key(
        0.0, "largest weight of tis and mis (0: 2.0); largest divergence of k3_rs (0: 0.01)", at_least=0
    )
    mismatch_bounds: list[float] = key(
        [], "[low, high] of seq_mis, geo_rs, icepop and seq_mask_tis; [] takes the method's own"
    )
    mismatch_normalise: bool = key(False, "scale the correction's weights to mean 1")


@dataclass
class CriticKeys:
    """The value model."""

    critic_lr: float = key(1e-3, "learning rate of the critic", at_least=0)
    critic_clip: float = key(0.5, "clip range of the value loss; 0 is off", at_least=0)
    critic_warmup: int = key(0, "iterations in which only the critic learns; 3spo: only what is known about states")


@dataclass
class OptimiserKeys:
    """Optimisers and learners."""

    lr: float = key(3e-4, "learning rate of the policy", at_least=0)
    optimizer: Literal["adamw", "muon"] = key("adamw", "`muon`: torch.optim.Muon on hidden matrices, AdamW elsewhere")
    muon_lr: float = key(0.02, "learning rate of Muon's matrices")
    betas: list[float] = key([0.9, 0.95], "AdamW's two decay rates")
    weight_decay: float = key(0.0, "decoupled weight decay")
    grad_clip: float = key(1.0, "global gradient norm; 0 is off", at_least=0)
    lr_warmup: int = key(0, "optimiser steps of linear warm-up", at_least=0)
    lr_decay: float = key(
        0.0, "share of the run's optimiser steps, at its end, over which the rate falls linearly", at_least=0
    )
    epochs: int = key(1, "passes over the rows of an iteration", at_least=1)
    minibatches: int = key(2, "optimiser steps per pass", at_least=1)
    tokens_per_microbatch: int = key(
        16384, "padded tokens per forward pass; gradients accumulate over micro-batches", at_least=1
    )
    demonstrations: int = key(8192, "demonstrated episodes that sft learns from, played once", at_least=1)
    num_learners: int = key(0, "learner actors; 0 learns in the driver process", at_least=0)
    gpus_per_learner: float = key(0.0, "GPUs of one learner")
    learner_sharding: Literal["none", "fsdp"] = key(
        "none", "`fsdp`: learners share weights, gradients and optimiser state (FSDP2); `none`: each has all of them"
    )
    learner_nodes: str = key("", "Ray resource of the nodes where learners go; empty: anywhere")
    learner_timeout_s: float = key(1800.0, "seconds without an answer before a learner actor counts as lost", above=0)
    max_learner_restarts: int = key(
        3, "times that lost learners are replaced before the run must get further than it was; 0 ends it", at_least=0
    )


@dataclass
class ReportKeys:
    """Evaluations, checkpoints, records."""

    eval_interval: int = key(
        10, "iterations between evaluations on the test tasks; 0 evaluates at start and end", at_least=0
    )
    eval_episodes: int = key(128, "episodes of an evaluation", at_least=1)
    eval_temperature: float = key(1.0, "sampling temperature of evaluations", at_least=0)
    checkpoint_interval: int = key(
        1, "iterations between checkpoints; 0 keeps only the last; raise it for big models", at_least=0
    )
    keep_checkpoints: int = key(3, "checkpoints kept; 0 keeps all", at_least=0)
    save_trajectories: int = key(16, "episodes of each iteration written to trajectories/", at_least=0)
