"""REINFORCE++: PPO with the batch mean as critic (Hu et al. 2025, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.advantages.gae import reward_to_go
from rl_agents.advantages.statistics import whiten_rows
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.sections import DiscountKeys, PolicyGradientKeys
from rl_agents.data.step_table import Pieces, penalized_rewards

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class ReinforceKeys(PolicyGradientKeys, DiscountKeys):
    """REINFORCE++"""


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ReinforceKeys) -> None:
    """A = whiten(G), G_j = r_j + γ·G_next: the reward-to-go, whitened over all sampled tokens of the batch.

    The return continues across tool outputs and rows, so that both row layouts give the same (verl 0.9).
    """
    pieces = Pieces.of(rows, trajectories)
    parts = reward_to_go(
        pieces.cut(penalized_rewards(rows, trajectories, settings.invalid_action_penalty)),
        pieces.cut([row.mask for row in rows]),
        pieces.following,
        gamma=settings.gamma,
    )
    returns = pieces.join(parts, rows)
    for row, values in zip(rows, whiten_rows(returns, [row.mask for row in rows]), strict=True):
        row.advantages = values.astype(np.float32)


ALGORITHM = AlgorithmSpec(
    name="reinforce++",
    summary="PPO with the batch mean return as baseline and the KL in the reward; one rollout per task is enough",
    reference="Hu et al. 2025, REINFORCE++ (arXiv 2501.03262), section 3",
    credit=credit,
    policy_loss=policy_loss,
    # gamma=1, clip 0.2 are the global defaults; 0.001 is what StepPO's scripts give it.
    defaults={"kl_in_reward_coef": 1e-3},
    keys=ReinforceKeys,
)
