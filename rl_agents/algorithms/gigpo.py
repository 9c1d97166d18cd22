"""GiGPO: GRPO between episodes plus GRPO between actions taken at the same state (Feng et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rl_agents.algorithms.base import DYNAMIC_SAMPLING_KEYS, POLICY_GRADIENT_KEYS, Recipe
from rl_agents.algorithms.dapo import select
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.credit.gae import discounted_returns
from rl_agents.credit.gigpo import anchor_clusters, gigpo
from rl_agents.credit.group import Std, grpo
from rl_agents.data.steps import StepTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory
    from rl_agents.settings import Settings


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: Settings) -> None:
    """A_t = A^E + ω·A^S_t: the episode's advantage in its group, and the step's among steps from the same state.

    A penalty for an unparsable action is subtracted from the step's own discounted return; with statistics over step
    rows also from the episode return that this row carries (verl-agent).
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    std: Std = "sample" if settings.step_norm == "mean_std" else "none"
    clusters = anchor_clusters(table.anchors, table.groups, similarity=settings.gigpo_similarity)
    advantages = gigpo(
        episode_advantages(table, settings),
        step_returns(table, settings),
        clusters,
        omega=settings.gigpo_omega,
        std=std,
    )
    table.spread(rows, advantages)


def episode_advantages(table: StepTable, settings: Settings) -> NDArray[np.float64]:
    """A^E of every step; an episode alone in its group keeps its return."""
    statistics = settings.group_statistics
    returns, groups, of_step = table.returns(statistics, penalised=statistics == "step_rows")
    std: Std = "sample" if settings.step_norm == "mean_std" else "none"
    return grpo(returns, groups, std=std, singleton="raw")[of_step]


def step_returns(table: StepTable, settings: Settings) -> NDArray[np.float64]:
    """G_t of every step, less its own penalty."""
    return discounted_returns(table.rewards, table.trajectories, table.index, table.penalties, gamma=settings.gamma)


RECIPE = Recipe(
    name="gigpo",
    summary="GRPO plus, per step, a second GRPO among all actions that the group took at the same state",
    reference="Feng et al. 2025, GiGPO (arXiv 2505.10978), section 4",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    defaults={"gamma": 0.95, "kl_coef": 0.01},
    uses=POLICY_GRADIENT_KEYS
    | DYNAMIC_SAMPLING_KEYS
    | {"gamma", "dual_clip", "group_statistics", "step_norm", "gigpo_omega", "gigpo_similarity"},
    grouped=True,
)
