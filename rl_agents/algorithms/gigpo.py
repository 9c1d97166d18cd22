"""GiGPO: GRPO between episodes plus GRPO between actions taken at the same state (Feng et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.dapo import select
from rl_agents.algorithms.grpo import DualClipKeys, GroupKeys, policy_loss
from rl_agents.credit.gae import discounted_returns
from rl_agents.credit.gigpo import gigpo
from rl_agents.data.steps import StepTable
from rl_agents.settings.options import key
from rl_agents.settings.sections import DiscountKeys, DynamicSamplingKeys

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class StepNormKeys:
    """Comparing steps from one state."""

    step_norm: Literal["mean", "mean_std"] = key("mean", "step-level groups: divide by their deviation or not")


@dataclass
class StepGroupKeys(StepNormKeys, GroupKeys, DualClipKeys, DiscountKeys):
    """Comparing steps beside episodes."""


@dataclass
class GigpoKeys(StepGroupKeys, DynamicSamplingKeys):
    """GiGPO."""

    gigpo_omega: float = key(1.0, "weight of the step advantage beside the episode advantage", at_least=0)
    gigpo_similarity: float = key(
        0.0, "text similarity at which two states are one (verl-agent 0.95); 0 is equality", at_least=0, at_most=1
    )


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GigpoKeys) -> None:
    """A_t = A^E + ω·A^S_t: the episode's advantage in its group, and the step's among steps from the same state.

    A penalty for an unparsable action is subtracted from the step's own discounted return; with statistics over step
    rows also from the episode return that this row carries (verl-agent).
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    statistics = settings.group_statistics
    step_returns = discounted_returns(
        table.rewards, table.trajectories, table.index, gamma=settings.gamma, penalties=table.penalties
    )
    advantages = gigpo(
        table.episode_returns(statistics, penalised=statistics == "step_rows"),
        step_returns,
        table.anchors,
        table.groups,
        table.trajectories,
        omega=settings.gigpo_omega,
        norm=settings.step_norm,
        statistics=statistics,
        similarity=settings.gigpo_similarity or None,
    )
    table.spread(rows, advantages)


RECIPE = Recipe(
    name="gigpo",
    summary="GRPO plus, per step, a second GRPO among all actions that the group took at the same state",
    reference="Feng et al. 2025, GiGPO (arXiv 2505.10978), section 4",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    defaults={"gamma": 0.95, "kl_coef": 0.01},
    keys=GigpoKeys,
    grouped=True,
)
