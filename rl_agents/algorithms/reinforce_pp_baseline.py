"""REINFORCE++-baseline: Dr.GRPO with one scale for the whole batch (Hu et al. 2025, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.grpo import DualClipKeys, GroupKeys, policy_loss
from rl_agents.credit.group import reinforce_plus_plus_baseline
from rl_agents.data.steps import StepTable

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class ReinforceBaselineKeys(GroupKeys, DualClipKeys):
    """REINFORCE++-baseline."""


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GroupKeys) -> None:
    """A = whiten(R_i - mean_g R) over all sampled tokens; a group that agrees gets the whitening offset, not 0."""
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    advantages = reinforce_plus_plus_baseline(
        table.episode_returns(settings.group_statistics),
        [np.ones(length) for length in table.lengths],
        table.groups,
        trajectories=table.trajectories,
        statistics=settings.group_statistics,
    )
    table.spread(rows, [step[0] for step in advantages])


RECIPE = Recipe(
    name="reinforce++-baseline",
    summary="Dr.GRPO whose advantages are divided by one deviation, that of all tokens of the batch",
    reference="Hu et al. 2025, REINFORCE++ (arXiv 2501.03262), section 3",
    credit=credit,
    policy_loss=policy_loss,
    # The usual pairing: k2 in the loss, whose gradient is that of the KL.
    defaults={"kl_coef": 1e-3, "kl_estimator": "k2"},
    keys=ReinforceBaselineKeys,
    grouped=True,
)
