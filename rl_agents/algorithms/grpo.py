"""GRPO: PPO whose critic is the mean return of the group (Shao et al. 2024, DeepSeekMath, section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rl_agents.advantages.group import grpo, leave_one_out, rloo
from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.config.options import key
from rl_agents.config.sections import PolicyGradientKeys
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    import torch

    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class GrpoKeys(PolicyGradientKeys):
    """Advantages within a group of rollouts"""

    group_statistics: Literal["trajectories", "step_rows"] = key(
        "trajectories", "What group statistics are taken over; `step_rows` favors longer episodes (verl-agent)"
    )
    singleton: Literal["zero", "raw"] = key(
        "zero", "Advantage in a group of one; `zero`: 0; `raw`: the return (verl)", needs="leave_one_out=false"
    )
    advantage_std: Literal["sample", "population", "none"] = key(
        "sample", "Standard deviation by which group advantages are divided; `none`: no division (Dr.GRPO)"
    )
    leave_one_out: bool = key(False, "Compare each rollout only with the others of its group (NeMo-RL)")


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A_i = (R_i - mean_g R) / (std_g R + 1e-6), the same for every sampled token of trajectory i.

    ``leave_one_out`` compares with the other members of the group only.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, groups, of_step = table.returns(settings.group_statistics)
    if not settings.leave_one_out:
        advantages = grpo(returns, groups, std=settings.advantage_std, singleton=settings.singleton)
    elif settings.advantage_std == "none":
        advantages = rloo(returns, groups)
    else:
        advantages = leave_one_out(returns, groups)
    table.spread(rows, advantages[of_step])


def policy_loss(inputs: LossInputs, settings: PolicyGradientKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on token ratios (`rl_agents.losses.policy.ppo_loss`)."""
    from rl_agents.losses.policy import ppo_loss

    return ppo_loss(
        inputs.logprobs,
        inputs.old_logprobs,
        inputs.advantages,
        inputs.mask,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        dual_clip=settings.dual_clip,
    )


ALGORITHM = AlgorithmSpec(
    name="grpo",
    summary="PPO with the mean return of a group of rollouts of the same task as baseline",
    reference="Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), section 4.1",
    credit=credit,
    policy_loss=policy_loss,
    keys=GrpoKeys,
    grouped=True,
)
