"""GRPO: PPO whose critic is the mean return of the group (Shao et al. 2024, DeepSeekMath, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.algorithms.base import POLICY_GRADIENT_KEYS, LossInputs, Recipe
from rl_agents.credit.group import dr_grpo, grpo

if TYPE_CHECKING:
    import torch

    from rl_agents.data.rows import Row
    from rl_agents.rollout.trajectory import Trajectory
    from rl_agents.settings import Settings


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Settings) -> None:
    """A_i = (R_i - mean_g R) / (std_g R + 1e-6), the same for every sampled token of trajectory i."""
    returns = np.array([t.episode_return for t in trajectories])
    groups = np.array([t.group_id for t in trajectories])
    if settings.advantage_std == "none":
        advantages = dr_grpo(returns, groups, singleton="zero")
    else:
        ddof = 1 if settings.advantage_std == "sample" else 0
        advantages = grpo(returns, groups, ddof=ddof, singleton="zero")
    for row in rows:
        row.advantages = (advantages[row.trajectory] * row.mask).astype(np.float32)


def policy_loss(inputs: LossInputs, settings: Settings) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on token ratios (`rl_agents.objectives.policy.ppo_loss`)."""
    from rl_agents.objectives.policy import ppo_loss

    return ppo_loss(
        inputs.logprobs,
        inputs.old_logprobs,
        inputs.advantages,
        inputs.mask,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip or None,
    )


RECIPE = Recipe(
    name="grpo",
    summary="PPO whose critic is the mean return of a group of rollouts of the same task",
    reference="Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), section 4.1",
    credit=credit,
    policy_loss=policy_loss,
    uses=POLICY_GRADIENT_KEYS | {"advantage_std"},
    grouped=True,
)
