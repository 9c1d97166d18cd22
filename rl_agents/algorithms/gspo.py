"""GSPO: GRPO with one importance ratio per sequence (Zheng et al. 2025, section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.algorithms.grpo import GrpoKeys, credit
from rl_agents.config.options import key

if TYPE_CHECKING:
    import torch


@dataclass
class GspoKeys(GrpoKeys):
    """GSPO"""

    gspo_token: bool = key(False, "Use the token form of GSPO, for advantages that vary within a row")


def policy_loss(inputs: LossInputs, settings: GspoKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on s_i = exp(mean_j(lp - lp_old)) over a row; all its tokens are clipped together.

    A row is an episode with ``sample_layout=merged``, a step with ``sample_layout=per_step``.
    """
    from rl_agents.losses.policy import gspo_token_loss, ppo_loss

    loss = gspo_token_loss if settings.gspo_token else partial(ppo_loss, level="sequence")
    return loss(
        inputs.logprobs,
        inputs.old_logprobs,
        inputs.advantages,
        inputs.mask,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
    )


ALGORITHM = AlgorithmSpec(
    name="gspo",
    summary="GRPO with one importance ratio per sequence, the geometric mean of its token ratios",
    reference="Zheng et al. 2025, GSPO (arXiv 2507.18071), equations 5-7; token form: equation 14",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"clip_low": 3e-4, "clip_high": 4e-4, "loss_agg_mode": "seq-mean-token-mean"},
    keys=GspoKeys,
    unread=("dual_clip",),
    grouped=True,
    stale_unit="step",
)
