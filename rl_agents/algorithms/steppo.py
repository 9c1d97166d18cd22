"""StepPO: PPO whose time unit is an interaction step, in the critic, the advantage and the ratio (arXiv 2604.18401)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from rl_agents.advantages import step_gae, whiten_steps
from rl_agents.algorithms import ppo
from rl_agents.algorithms.base import AlgorithmSpec, LossInputs
from rl_agents.algorithms.grpo import surrogate
from rl_agents.config.options import key
from rl_agents.config.sections import PolicyGradientKeys
from rl_agents.data.step_table import StepTable, step_starts

if TYPE_CHECKING:
    import torch

    from rl_agents.data.samples import FloatArray, Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class RatioLevelKeys(PolicyGradientKeys):
    """Unit of the importance ratio"""

    ratio_level: Literal["token", "step", "sequence"] = key("step", "Unit of the importance ratio")


@dataclass
class StepPoKeys(ppo.PpoKeys, RatioLevelKeys):
    """StepPO"""

    steppo_credit: Literal["step_gae", "token_gae"] = key(
        "step_gae", "Advantage estimator; `token_gae`: ablation without step-level GAE"
    )


def value_mask(row: Row, settings: StepPoKeys) -> FloatArray:
    """The critic is read at the last token before each action; with ``token_gae``, at all sampled tokens."""
    return step_starts(row) if settings.steppo_credit == "step_gae" else row.mask.copy()


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: StepPoKeys) -> None:
    """δ_t = r_t + γ·V_{t+1} - V_t;  A_t = Σ_l (γλ)^l·δ_{t+l}, whitened over the batch's steps (equation 6).

    With ``bootstrap_on_truncation``, V_{t+1} of an episode that was cut is `Row.value_after`, the value of the next
    prompt. In a tree of calls, t+1 is the step that reads the result of t.
    """
    if settings.steppo_credit == "token_gae":
        ppo.credit(rows, trajectories, settings)
        return
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    values = np.array([_value(rows[row], start) for row, start in zip(table.rows, table.starts, strict=True)])
    gae = step_gae(
        table.rewards - table.penalties,
        values,
        table.following,
        gamma=settings.gamma,
        lam=settings.gae_lambda,
        final_values=np.array([rows[row].value_after for row in table.rows]),
    )
    table.spread(rows, whiten_steps(gae.advantages) if settings.whiten else gae.advantages)
    for row in rows:
        row.returns = np.zeros(len(row), np.float32)
    for target, number, start in zip(gae.returns, table.rows, table.starts, strict=True):
        rows[number].returns[start] = target  # type: ignore[index]


def _value(row: Row, position: int) -> float:
    assert row.values is not None, "the critic scores rows before credit"
    return float(row.values[position])


def policy_loss(inputs: LossInputs, settings: RatioLevelKeys) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Clipped surrogate on w_t = exp(mean_j(lp - lp_old)) over a step's tokens (equations 7-8), or on another unit's.

    ``ratio_level`` names the unit: step, token or sequence.
    """
    return surrogate(inputs, settings, settings.ratio_level)


ALGORITHM = AlgorithmSpec(
    name="steppo",
    summary="PPO with the interaction step as time unit: one value, one advantage and one ratio per step",
    reference="StepPO (arXiv 2604.18401), equations 6-8",
    credit=credit,
    policy_loss=policy_loss,
    value_mask=value_mask,
    # The paper states no clip range: 3e-4 and 4e-4 are those of three of its four scripts.
    defaults={"gamma": 0.99, "kl_coef": 1e-3, "clip_low": 3e-4, "clip_high": 4e-4, "loss_agg_mode": "step-mean"},
    keys=StepPoKeys,
    critic=True,
    stale_unit="step",
)
