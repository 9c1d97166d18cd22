"""What an algorithm is here: a recipe of named parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

    from rl_agents.data.rows import Row
    from rl_agents.rollout.trajectory import Trajectory
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


@dataclass(frozen=True)
class Recipe:
    """An algorithm: one choice for each part, and the keys that mean something to it.

    Attributes:
        name: as on the command line.
        summary: one sentence that locates it relative to another method.
        reference: paper and section.
        policy_loss: objective per token.
        credit: advantages of rollouts; None for supervised recipes.
        uses: the algorithm-specific settings keys with an effect; setting another one is an error.
        defaults: this recipe's defaults where they differ from `Settings`.
        source: where experience comes from.
        critic: a value network learns beside the policy.
        grouped: advantages compare rollouts of one task, so a group of one has no effect.
    """

    name: str
    summary: str
    reference: str
    policy_loss: PolicyLoss
    credit: Credit | None = None
    uses: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    source: Literal["rollouts", "demonstrations"] = "rollouts"
    critic: bool = False
    grouped: bool = False


#: Keys that only some algorithms read. A recipe names those it reads in ``uses``.
ALGORITHM_KEYS = frozenset(
    {
        "gamma", "lam", "advantage_std", "bootstrap_on_truncation", "clip_low", "clip_high", "dual_clip", "kl_coef",
        "kl_estimator", "entropy_coef", "old_logprobs", "critic_lr", "critic_clip", "critic_warmup", "demonstrations",
    }
)  # fmt: skip

#: Keys of the clipped-ratio family.
POLICY_GRADIENT_KEYS = frozenset(
    {"clip_low", "clip_high", "dual_clip", "kl_coef", "kl_estimator", "entropy_coef", "old_logprobs"}
)
