"""HGPO: GiGPO's step comparison at several depths of history, deeper ones weighing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_agents.algorithms.base import POLICY_GRADIENT_KEYS, Recipe
from rl_agents.algorithms.gigpo import episode_advantages, step_returns
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.credit.hgpo import hgpo
from rl_agents.data.steps import StepTable

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory
    from rl_agents.settings import Settings


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Settings) -> None:
    """A = Σ_k w_k·A_k, A_k among the group's steps with the same last k+1 states, w_k ∝ (k + offset)^α.

    A step that shares no state with another gets 0, unless ``hgpo_base`` adds the episode advantage.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    advantages = hgpo(
        step_returns(table, settings),
        table.anchors,
        table.groups,
        table.trajectories,
        table.index,
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
    uses=POLICY_GRADIENT_KEYS
    | {
        "gamma",
        "dual_clip",
        "group_statistics",
        "step_norm",
        "hgpo_history",
        "hgpo_alpha",
        "hgpo_weight_offset",
        "hgpo_base",
    },
    grouped=True,
)
