"""GRPO: PPO whose critic is the mean return of the group (Shao et al. 2024, DeepSeekMath, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_agents.algorithms.base import GRPO_KEYS, LossInputs, Recipe
from rl_agents.credit import group
from rl_agents.data.steps import StepTable

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory
    from rl_agents.settings import Settings


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Settings) -> None:
    """A_i = (R_i - mean_g R) / (std_g R + 1e-6), the same for every sampled token of trajectory i."""
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    table.spread(rows, advantages(table, settings))


def advantages(table: StepTable, settings: Settings) -> NDArray[np.float64]:
    """Group-normalised returns, one per step; ``leave_one_out`` compares with the other members only."""
    statistics = settings.group_statistics
    returns = table.episode_returns(statistics)
    groups, trajectories, std = table.groups, table.trajectories, settings.advantage_std
    if settings.leave_one_out:
        return group.leave_one_out(
            returns, groups, trajectories=trajectories, statistics=statistics, divide_by_std=std != "none"
        )
    if std == "none":
        return group.dr_grpo(
            returns, groups, trajectories=trajectories, statistics=statistics, singleton=settings.singleton
        )
    return group.grpo(
        returns,
        groups,
        trajectories=trajectories,
        statistics=statistics,
        ddof=1 if std == "sample" else 0,
        singleton=settings.singleton,
    )


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
    uses=GRPO_KEYS | {"dual_clip"},
    grouped=True,
)
