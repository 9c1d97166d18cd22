"""Dr.GRPO: GRPO without its two divisions, by deviation and by length (Liu et al. 2025, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_agents.advantages.group import grpo
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import GrpoKeys, policy_loss
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A_i = R_i - mean_g R: easy and hard tasks are not blown up by a small deviation."""
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, groups, of_step = table.returns(settings.group_statistics)
    advantages = grpo(returns, groups, std="none", singleton=settings.singleton)
    table.spread(rows, advantages[of_step])


ALGORITHM = AlgorithmSpec(
    name="dr-grpo",
    summary="GRPO without the division by the group's deviation and by the response's length",
    reference="Liu et al. 2025, Understanding R1-Zero-like training (arXiv 2503.20783), section 3.2",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"loss_agg_mode": "seq-mean-token-sum-norm"},
    keys=GrpoKeys,
    unread=("advantage_std", "leave_one_out"),
    grouped=True,
)
