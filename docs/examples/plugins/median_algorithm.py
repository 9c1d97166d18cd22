"""An algorithm: each episode against the median of its group, which one lucky episode does not move."""

from dataclasses import dataclass

import numpy as np

from rl_agents.algorithms import register
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.options import key
from rl_agents.config.sections import PolicyGradientKeys
from rl_agents.data.step_table import StepTable


@dataclass
class MedianKeys(PolicyGradientKeys):
    """Keys of own-median."""

    own_median_weight: float = key(1.0, "Share of the median to subtract", ge=0, le=1)


def credit(rows, trajectories, settings):
    """A_i = R_i - w·median_g R."""
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    returns, groups, of_step = table.returns("trajectories")
    medians = {group: np.median(returns[groups == group]) for group in np.unique(groups)}
    advantages = returns - settings.own_median_weight * np.array([medians[group] for group in groups])
    table.spread(rows, advantages[of_step])


register(
    AlgorithmSpec(
        name="own-median",
        summary="returns against the median of the group",
        reference="docs/how-to/extend.md",
        credit=credit,
        policy_loss=policy_loss,
        keys=MedianKeys,
        grouped=True,
    )
)
