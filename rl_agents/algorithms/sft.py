"""Supervised fine-tuning: imitate demonstrations (the warm start before reinforcement learning)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.config.sections import DemonstrationKeys

if TYPE_CHECKING:
    import torch


def policy_loss(inputs: LossInputs, settings: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """ℓ_j = -lp_j on demonstrated assistant tokens."""
    from rl_agents.losses import cross_entropy

    return cross_entropy(inputs.logprobs, inputs.mask), {}


ALGORITHM = AlgorithmSpec(
    name="sft",
    summary="supervised fine-tuning: maximum likelihood of demonstrated turns",
    reference="the SFT baseline of PivotRL (arXiv 2603.21383), section 3",
    policy_loss=policy_loss,
    keys=DemonstrationKeys,
    source="demonstrations",
)
