"""REINFORCE++-baseline: Dr.GRPO with one scale for the whole batch (Hu et al. 2025, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_agents.advantages.group import grpo
from rl_agents.advantages.statistics import whiten_by_length
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import GrpoKeys, policy_loss
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A = whiten(R_i - mean_g R) over all sampled tokens; a group that agrees gets the whitening offset, not 0.

    A group of one subtracts nothing.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, groups, of_step = table.returns(settings.group_statistics)
    centered = grpo(returns, groups, std="none", singleton="raw")[of_step]
    table.spread(rows, whiten_by_length(centered, table.lengths))


ALGORITHM = AlgorithmSpec(
    name="reinforce++-baseline",
    summary="Dr.GRPO with advantages divided by their standard deviation over all tokens of the batch",
    reference="Hu et al. 2025, REINFORCE++ (arXiv 2501.03262), section 3",
    credit=credit,
    policy_loss=policy_loss,
    # The usual pairing: k2 in the loss, whose gradient is that of the KL.
    defaults={"kl_coef": 1e-3, "kl_estimator": "k2"},
    keys=GrpoKeys,
    unread=("singleton", "advantage_std", "leave_one_out"),
    grouped=True,
)
