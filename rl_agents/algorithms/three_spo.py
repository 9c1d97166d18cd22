"""3SPO: GRPO whose group is a state, at states that a search chooses by what is known about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.gigpo import StepNormKeys
from rl_agents.algorithms.grpo import DualClipKeys, policy_loss
from rl_agents.credit.three_spo import sibling_advantages
from rl_agents.data.steps import StepTable
from rl_agents.settings.options import key
from rl_agents.settings.sections import DiscountKeys, SearchKeys, WarmupKeys

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class ThreeSpoKeys(SearchKeys, StepNormKeys, DualClipKeys, DiscountKeys, WarmupKeys):
    """3SPO."""

    gamma: float = key(1.0, "discount", at_least=0, at_most=1, needs="score_difference=value or state_value=chain")


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ThreeSpoKeys) -> None:
    """A_i = (R_i - mean_s R) / (std_s R + 1e-6) over the n(s) siblings of a state s (eq. 4).

    A trajectory is one sibling's step, its group the state, its reward the step reward of eq. 2
    (`rl_agents.search.rewards`), less the price of an action that cannot be parsed.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    rewards = table.rewards - table.penalties
    if settings.search_baseline == "score":
        table.spread(rows, rewards / (np.sqrt(np.mean(rewards**2)) + 1e-6))
    else:
        table.spread(rows, sibling_advantages(rewards, table.groups, norm=settings.step_norm))


RECIPE = Recipe(
    name="3spo",
    summary="GRPO among actions sampled on purpose at one state, which a search with state scores chooses",
    reference="3SPO: State-Score-Supervised Policy Optimization for LLM Agents, section 3 and algorithm 1",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"kl_coef": 0.01, "step_norm": "mean_std", "aggregation": "seq-mean-token-mean", "minibatches": 1},
    keys=ThreeSpoKeys,
    source="search",
    grouped=True,
    preset="alfworld_3spo_small.yaml",
)
