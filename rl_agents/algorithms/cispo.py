"""CISPO: GRPO whose clip bounds a token's weight and leaves its gradient (MiniMax-M1, Chen et al. 2025)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.algorithms.grpo import GrpoKeys, credit
from rl_agents.config.sections import PolicyGradientKeys

if TYPE_CHECKING:
    import torch


def policy_loss(inputs: LossInputs, settings: PolicyGradientKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """-sg(clip(ρ_j))·A_j·lp_j: rare tokens that steer a response keep learning when their ratio is clipped."""
    from rl_agents.losses.policy import cispo_loss

    return cispo_loss(
        inputs.logprobs,
        inputs.old_logprobs,
        inputs.advantages,
        inputs.mask,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
    )


ALGORITHM = AlgorithmSpec(
    name="cispo",
    summary="GRPO whose clip bounds the weight of a token instead of removing its gradient",
    reference="Chen et al. 2025, MiniMax-M1 (arXiv 2506.13585), equations 4-5",
    credit=credit,
    policy_loss=policy_loss,
    # clip_low of 1 or more: no lower bound, as in the released example.
    defaults={"clip_low": 10.0, "clip_high": 0.2},
    keys=GrpoKeys,
    unread=("dual_clip",),
    grouped=True,
)
