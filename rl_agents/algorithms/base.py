"""What an algorithm is here: a recipe of named parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from rl_agents.search.states import States
from rl_agents.settings.options import option_types
from rl_agents.settings.search import ChainSearchKeys, SearchKeys, ThreeSpoKeys

if TYPE_CHECKING:
    import numpy as np
    import torch

    from rl_agents.data.rows import FloatArray, Row
    from rl_agents.data.selection import Selected
    from rl_agents.data.trajectory import Trajectory
    from rl_agents.settings import Settings


@dataclass(frozen=True, slots=True)
class LossInputs:
    """What a policy loss may read; all tensors [rows, tokens].

    Attributes:
        logprobs: under the current weights, with gradient.
        old_logprobs: denominator of the importance ratio.
        advantages: detached credit.
        mask: 1 where the policy sampled the token.
        segments: interaction step of a sampled token, -1 elsewhere.
    """

    logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    advantages: torch.Tensor
    mask: torch.Tensor
    segments: torch.Tensor

    @classmethod
    def from_batch(cls, logprobs: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> LossInputs:
        """Pick the fields out of a collated batch; absent credit reads as 0 (supervised losses)."""
        mask = batch["mask"]
        advantages = batch.get("advantages", mask * 0)
        old = batch.get("old_logprobs", batch["logprobs"])
        return cls(logprobs, old, advantages, mask, batch["segments"])


#: Loss per token [rows, tokens] (0 outside the mask) and per-token metrics.
PolicyLoss = Callable[[LossInputs, "Settings"], "tuple[torch.Tensor, dict[str, torch.Tensor]]"]
#: Fill ``advantages`` (and ``returns``) of every row.
Credit = Callable[[Sequence["Row"], Sequence["Trajectory"], "Settings"], None]
#: From all episodes of the iteration so far, before credit: which to learn from, with which weight per group, and how
#: many groups are missing. Asked again, with more episodes, while some are.
Select = Callable[[Sequence["Trajectory"], "Settings", "np.random.Generator"], "Selected"]
#: 1 at the tokens before which the critic is read and trained.
ValueMask = Callable[["Row", "Settings"], "FloatArray"]


@dataclass(frozen=True)
class Recipe:
    """An algorithm: one choice for each part, and the keys that mean something to it.

    Attributes:
        name: as on the command line.
        summary: one sentence that locates it relative to another method.
        reference: paper and section.
        policy_loss: objective per token.
        credit: advantages of rollouts; None for supervised recipes.
        select: which groups are learned from, and how much each counts; None for all alike.
        value_mask: where the critic is read and trained; None for every sampled token.
        uses: the algorithm-specific settings keys with an effect; setting another one is an error.
        defaults: this recipe's defaults where they differ from `Settings`.
        source: where experience comes from: whole episodes, a demonstrator, or siblings at states that a search visits.
        states: what a search knows about states, for the source "search".
        critic: a value network learns beside the policy.
        grouped: advantages compare rollouts of one task, so a group of one has no effect.
        preset: recipe file of tune_configs/recipes that the command line takes, with its algorithm, when it is given
            neither an environment nor a recipe; empty: the defaults.
        preset_note: lines that it prints then, where the recipe's algorithm is another one.
    """

    name: str
    summary: str
    reference: str
    policy_loss: PolicyLoss
    credit: Credit | None = None
    select: Select | None = None
    value_mask: ValueMask | None = None
    uses: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    source: Literal["rollouts", "demonstrations", "search"] = "rollouts"
    states: Callable[[Settings], States] | None = None
    critic: bool = False
    grouped: bool = False
    preset: str = ""
    preset_note: tuple[str, ...] = ()


#: Keys of everything that learns from rollouts with importance ratios.
POLICY_GRADIENT_KEYS = frozenset(
    {
        "clip_low", "clip_high", "kl_coef", "kl_estimator", "kl_in_reward_coef", "kl_in_reward_estimator",
        "kl_controller", "kl_target", "kl_horizon", "entropy_coef", "old_logprobs", "mismatch", "mismatch_cap",
        "mismatch_bounds", "mismatch_normalise", "invalid_action_penalty",
    }
)  # fmt: skip

#: Keys of advantages from comparing rollouts of one task.
GROUP_KEYS = frozenset({"group_statistics", "singleton"})
GRPO_KEYS = POLICY_GRADIENT_KEYS | GROUP_KEYS | {"advantage_std", "leave_one_out"}
CRITIC_KEYS = frozenset(
    {"gamma", "lam", "bootstrap_on_truncation", "whiten", "critic_lr", "critic_clip", "critic_warmup"}
)
DYNAMIC_SAMPLING_KEYS = frozenset({"dynamic_sampling", "dynamic_sampling_metric", "max_generation_batches"})
OVERLONG_KEYS = frozenset({"overlong_factor", "overlong_length", "overlong_cache", "overlong_filtering"})

SEARCH_KEYS = frozenset(option_types(SearchKeys))
THREE_SPO_KEYS = frozenset(option_types(ThreeSpoKeys))
CHAIN_SEARCH_KEYS = frozenset(option_types(ChainSearchKeys))

#: Keys that only some algorithms read. A recipe names those it reads in ``uses``.
ALGORITHM_KEYS = (
    GRPO_KEYS
    | CRITIC_KEYS
    | DYNAMIC_SAMPLING_KEYS
    | OVERLONG_KEYS
    | SEARCH_KEYS
    | THREE_SPO_KEYS
    | CHAIN_SEARCH_KEYS
    | {
        "dual_clip", "demonstrations", "return_at_observation", "step_norm", "gigpo_omega", "gigpo_similarity",
        "gspo_token", "hgpo_history", "hgpo_alpha", "hgpo_weight_offset", "hgpo_base", "ratio_level", "steppo_credit",
        "vspo_mode", "vspo_temperature", "vspo_alpha", "vspo_clip",
    }
)  # fmt: skip
