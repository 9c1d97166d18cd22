"""RLOO: Dr.GRPO with the mean of the *other* rollouts as baseline (Ahmadian et al. 2024, section 3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_agents.advantages.group import rloo
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import GrpoKeys, policy_loss
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GrpoKeys) -> None:
    """A_i = R_i - mean of the others = n/(n-1)·(R_i - mean_g R); no deviation, no whitening.

    A group of one (its siblings' environments failed) keeps A = R, or teaches nothing with ``singleton=zero``.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, groups, of_step = table.returns(settings.group_statistics)
    table.spread(rows, rloo(returns, groups, singleton=settings.singleton)[of_step])


ALGORITHM = AlgorithmSpec(
    name="rloo",
    summary="Dr.GRPO with an unbiased baseline: the mean return of the other rollouts of the task",
    reference="Ahmadian et al. 2024, Back to Basics (arXiv 2402.14740), section 3.3",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"singleton": "raw"},
    keys=GrpoKeys,
    unread=("advantage_std", "leave_one_out"),
    grouped=True,
)
