"""HGPO: GiGPO's step comparison at several depths of history, deeper ones weighing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rl_agents.advantages.hgpo import hgpo
from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.gigpo import StepGroupKeys, episode_advantages, step_returns
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.options import key
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class HgpoKeys(StepGroupKeys):
    """HGPO."""

    hgpo_history: int = key(2, "earlier states in the deepest context (K)", at_least=0)
    hgpo_alpha: float = key(1.0, "exponent that favours deep contexts; 0 weighs all alike", at_least=0)
    hgpo_weight_offset: int = key(1, "weights (k + offset)^alpha: 1 paper, 2 released code", at_least=0)
    hgpo_base: bool = key(False, "the episode advantage joins as one more item of weight 1")


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: HgpoKeys) -> None:
    """A = Σ_k w_k·A_k, A_k among the group's steps with the same last k+1 states, w_k ∝ (k + offset)^α.

    A step that shares no state with another gets 0, unless ``hgpo_base`` adds the episode advantage.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    advantages = hgpo(
        step_returns(table, settings),
        table.anchors,
        table.groups,
        table.previous,
        history=settings.hgpo_history,
        alpha=settings.hgpo_alpha,
        weight_offset=settings.hgpo_weight_offset,
        std="population" if settings.step_norm == "mean_std" else "none",
        base=episode_advantages(table, settings) if settings.hgpo_base else None,
    )
    table.spread(rows, advantages)


RECIPE = Recipe(
    name="hgpo",
    summary="GiGPO's step advantage averaged over contexts of several depths, long shared histories weighing more",
    reference="HGPO (arXiv 2602.22817); the step term is GiGPO (arXiv 2505.10978), equation 8",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"gamma": 0.95, "kl_coef": 0.01, "step_norm": "mean_std"},
    keys=HgpoKeys,
    grouped=True,
)
