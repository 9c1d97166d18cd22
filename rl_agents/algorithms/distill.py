"""On-policy distillation: the policy acts, and a teacher scores every token that it sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_agents.advantages import reward_to_go
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.sections import DiscountKeys, PolicyGradientKeys
from rl_agents.data.step_table import CreditUnits

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class DistillKeys(DiscountKeys, PolicyGradientKeys):
    """On-policy distillation"""


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Any) -> None:
    """A_j = Σ_k γ^k·(lp_T - lp)_{j+k}: minus the reverse KL of the token, with γ > 0 also of later ones.

    With ``teacher_kl=full`` A = 0, because the loss component `ref_kl` has the whole gradient.
    """
    if settings.teacher_kl == "full":
        gains = [np.zeros(len(row), np.float32) for row in rows]
    else:
        gains = [-row.teacher_gap for row in rows]
    pieces = CreditUnits.of(rows, trajectories)
    masks = pieces.cut([row.mask for row in rows])
    parts = reward_to_go(pieces.cut(gains), masks, pieces.following, gamma=settings.gamma)
    for row, values in zip(rows, pieces.join(parts, rows), strict=True):
        row.advantages = values.astype(np.float32)


ALGORITHM = AlgorithmSpec(
    name="distill",
    summary="on-policy distillation: the reverse KL from a teacher is the advantage of every sampled token",
    reference="Lu et al. 2025, On-Policy Distillation (Thinking Machines Lab); Agarwal et al. 2024 (arXiv 2306.13649)",
    credit=credit,
    policy_loss=policy_loss,
    keys=DistillKeys,
    teacher=True,
    unread=("invalid_action_penalty",),
    # No groups are compared: other tasks teach more than further rollouts of one.
    defaults={"gamma": 0.0, "tasks_per_iteration": 128, "group_size": 1},
    variants={"teacher_kl": {"sampled": {}, "full": {"ref_kl_coef": 1.0}}},
)
