"""PPO: clipped ratios with a critic and generalised advantage estimation over tokens (Schulman et al. 2017, 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.algorithms.base import PolicyGradientKeys, Recipe
from rl_agents.algorithms.grpo import DualClipKeys, policy_loss
from rl_agents.credit.gae import token_gae_rows
from rl_agents.credit.statistics import masked_whiten
from rl_agents.data.steps import penalised_rewards, row_order
from rl_agents.settings.options import key
from rl_agents.settings.sections import CriticKeys, DiscountKeys

if TYPE_CHECKING:
    from rl_agents.data.rows import Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class GaeKeys(CriticKeys, DiscountKeys, PolicyGradientKeys):
    """Generalised advantage estimation."""

    lam: float = key(1.0, "lambda of generalised advantage estimation", at_least=0, at_most=1)
    bootstrap_on_truncation: bool = key(False, "bootstrap the value of an episode cut by a limit (else 0)")
    whiten: bool = key(True, "whiten advantages over the batch: ppo over tokens, steppo over steps")


@dataclass
class PpoKeys(GaeKeys, DualClipKeys):
    """PPO."""


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GaeKeys) -> None:
    """Token GAE continued over the rows of a trajectory; advantages whitened over all sampled tokens.

    An episode that was cut by a limit bootstraps 0, or with ``bootstrap_on_truncation`` the critic's value of its
    last sampled token's prefix, the nearest state that was forwarded.
    """
    gae = token_gae_rows(
        penalised_rewards(rows, trajectories, settings.invalid_action_penalty),
        [_values(row) for row in rows],
        [row.mask for row in rows],
        *row_order(rows),
        gamma=settings.gamma,
        lam=settings.lam,
        truncated=np.array([row.last and not row.terminated for row in rows]),
        final_values=np.array([_last_value(row) for row in rows]),
        bootstrap_on_truncation=settings.bootstrap_on_truncation,
    )
    advantages = np.concatenate(gae.advantages)
    if settings.whiten:
        advantages = masked_whiten(advantages, np.concatenate([row.mask for row in rows]))
    parts = np.split(advantages, np.cumsum([len(row) for row in rows])[:-1])
    for row, part, returns in zip(rows, parts, gae.returns, strict=True):
        row.advantages = (part * row.mask).astype(np.float32)
        row.returns = returns.astype(np.float32)


def _values(row: Row) -> np.ndarray:
    assert row.values is not None, "the critic scores rows before credit"
    return row.values


def _last_value(row: Row) -> float:
    sampled = np.flatnonzero(row.mask)
    return float(_values(row)[sampled[-1]]) if sampled.size else 0.0


RECIPE = Recipe(
    name="ppo",
    summary="REINFORCE with a critic, advantages from GAE over tokens, and clipped importance ratios",
    reference="Schulman et al. 2017 (arXiv 1707.06347), equation 7; GAE: Schulman et al. 2016 (arXiv 1506.02438)",
    credit=credit,
    policy_loss=policy_loss,
    keys=PpoKeys,
    critic=True,
)
