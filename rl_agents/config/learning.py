"""The keys of learning: losses, what they learn from, critics and optimizers; section by section.

An algorithm takes those of its own kind by inheriting a section (`rl_agents.algorithms`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.options import key


@dataclass
class LossKeys:
    """How steps become rows, and losses of tokens one number."""

    sample_layout: Literal["merged", "per_step"] = key(
        "merged", "`merged`: consecutive steps whose prompts extend each other share one row"
    )
    loss_agg_mode: Literal[
        "token-mean",
        "seq-mean-token-mean",
        "seq-mean-token-sum",
        "seq-mean-token-sum-norm",
        "step-mean",
        "step-mean-in-traj",
    ] = key("token-mean", "how token losses become one number, over the global mini-batch")
    loss_length: int = key(
        0, "length L that divides; 0 takes the longest row", at_least=0, needs="loss_agg_mode=seq-mean-token-sum-norm"
    )


@dataclass
class DiscountKeys:
    """The discount."""

    gamma: float = key(1.0, "discount", at_least=0, at_most=1)


@dataclass
class DynamicSamplingKeys:
    """Playing further tasks until enough of them teach something."""

    dynamic_sampling: bool = key(False, "drop tasks whose rollouts agree and play further ones until enough differ")
    dynamic_sampling_metric: Literal["success", "return", "shaped_return"] = key(
        "success",
        "what must differ within a group; `shaped_return` includes the overlong penalty",
        needs="dynamic_sampling",
    )
    max_generation_batches: int = key(
        10, "rounds of rollouts of one iteration at most; 0 is no limit", at_least=0, needs="dynamic_sampling"
    )


@dataclass
class FilteringKeys:
    """Responses that get no loss."""

    overlong_filtering: bool = key(False, "responses cut at the length limit get no loss")


@dataclass
class OverlongKeys(FilteringKeys):
    """The price of length."""

    overlong_factor: float = key(0.0, "penalty of a response at the length limit; 0 is off", at_least=0)
    overlong_cache: int = key(
        0,
        "tokens before that limit over which it grows; 0 takes a fifth of it",
        at_least=0,
        needs="overlong_factor",
    )


@dataclass
class RatioKeys:
    """What the loss has beside its importance ratios: KL, entropy, and the correction of the engine's numbers."""

    kl_coef: float = key(0.0, "weight of the KL to the reference (the starting weights) in the loss", at_least=0)
    kl_estimator: Literal["k1", "abs", "k2", "k3", "k3+"] = key("k3", "estimator of that KL", needs="kl_coef")
    kl_in_reward_coef: float = key(0.0, "weight of the KL to the reference in the token rewards", at_least=0)
    entropy_coef: float = key(0.0, "weight of the entropy bonus", at_least=0)
    old_logprobs: Literal["engine", "learner"] = key(
        "engine", "denominator of the ratio: the engine's logprobs, or recomputed by the learner"
    )
    rollout_correction: Literal[
        "none", "token_tis", "step_tis", "sequence_tis", "seq_mis", "geo_rs", "k3_rs", "icepop", "seq_mask_tis"
    ] = key("none", "correction of engine against learner logprobs; needs old_logprobs=learner")
    rollout_correction_cap: float = key(
        0.0,
        "largest weight of tis and mis (0: 2.0); largest divergence of k3_rs (0: 0.01)",
        at_least=0,
        needs="rollout_correction=token_tis|step_tis|sequence_tis|seq_mis|k3_rs",
    )
    rollout_correction_bounds: list[float] = key(
        [],
        "[low, high]; [] takes the method's own",
        at_least=0,
        needs="rollout_correction=seq_mis|geo_rs|icepop|seq_mask_tis",
    )


@dataclass
class WarmupKeys:
    """Iterations before the policy learns."""

    critic_warmup: int = key(0, "first iterations in which only the critic learns", at_least=0)


@dataclass
class CriticKeys(WarmupKeys):
    """The value model."""

    critic_lr: float = key(1e-3, "learning rate of the critic", at_least=0)
    cliprange_value: float = key(0.5, "clip range of the value loss; 0 is off", at_least=0)


@dataclass
class DemonstrationKeys:
    """Learning from demonstrations."""

    demonstrations: int = key(8192, "demonstrated episodes that sft learns from, played once", at_least=1)
    demonstration_data: str = key(
        "", "table of dialogues to imitate in place of the environment's player: a file, a folder or hub:NAME"
    )
    demonstration_columns: dict[str, str] = key(
        {}, "what is read -> column, such as messages:dialogue", needs="demonstration_data"
    )
    pool_min_return: float | None = key(
        None, "sessions of a pool with at least this return are imitated; not set: the solved ones", needs="pool"
    )
    pool_top_share: float = key(
        0.0, "share of them, those with the highest returns; 0: all", at_least=0, at_most=1, needs="pool"
    )


@dataclass
class OptimizerKeys:
    """Optimizers and learners."""

    lr: float = key(3e-4, "learning rate of the policy", at_least=0)
    optimizer: Literal["adamw", "muon"] = key("adamw", "`muon`: torch.optim.Muon on hidden matrices, AdamW elsewhere")
    muon_lr: float = key(0.02, "learning rate of Muon's matrices", at_least=0, needs="optimizer=muon")
    betas: list[float] = key([0.9, 0.95], "AdamW's two decay rates", at_least=0, below=1)
    weight_decay: float = key(0.0, "decoupled weight decay", at_least=0)
    grad_clip: float = key(1.0, "global gradient norm; 0 is off", at_least=0)
    lr_warmup: int = key(0, "optimizer steps of linear warm-up", at_least=0)
    lr_decay: float = key(
        0.0,
        "share of the run's optimizer steps (in a search: iterations), at its end, over which the rate falls linearly",
        at_least=0,
        at_most=1,
    )
    epochs: int = key(1, "passes over the rows of an iteration", at_least=1)
    minibatches: int = key(2, "optimizer steps per pass", at_least=1)
    tokens_per_microbatch: int = key(
        16384, "padded tokens per forward pass; gradients accumulate over micro-batches", at_least=1
    )
    prefix_sharing: bool = key(
        False, "tokens that rows begin with alike are forwarded once where that pays; the same gradients"
    )
    sequence_packing: bool = key(
        False, "rows that share nothing stand one behind another instead of being padded; the same gradients"
    )
    num_learners: int = key(0, "learner actors; 0 learns in the driver process", at_least=0)
    gpus_per_learner: float = key(0.0, "GPUs of one learner", at_least=0)
    learner_sharding: Literal["none", "fsdp"] = key(
        "none",
        "`fsdp`: learners share weights, gradients and optimizer state (FSDP2); `none`: each has all of them",
        needs="num_learners",
    )
    learner_nodes: str = key("", "Ray resource of the nodes where learners go; empty: anywhere", needs="num_learners")
    learner_timeout_s: float = key(
        1800.0, "seconds without an answer before a learner actor counts as lost", above=0, needs="num_learners"
    )
    max_learner_restarts: int = key(
        3,
        "times that lost learners are replaced before the run must get further than it was; 0 ends it",
        at_least=0,
        needs="num_learners",
    )
