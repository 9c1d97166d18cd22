"""PPO: clipped ratios with a critic and generalized advantage estimation over tokens (Schulman et al. 2017, 2016).

REINFORCE++ is PPO with the batch mean as critic (Hu et al. 2025, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rl_agents.advantages import reward_to_go, token_gae, whiten_rows
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import policy_loss
from rl_agents.config.options import key
from rl_agents.config.sections import CriticKeys, DiscountKeys, PolicyGradientKeys
from rl_agents.data.step_table import CreditUnits, penalized_rewards

if TYPE_CHECKING:
    from rl_agents.data.samples import FloatArray, Row
    from rl_agents.data.trajectory import Trajectory


@dataclass
class GaeKeys(DiscountKeys, PolicyGradientKeys):
    """Generalized advantage estimation"""

    gae_lambda: float = key(1.0, "Lambda of generalized advantage estimation", ge=0, le=1)
    bootstrap_on_truncation: bool = key(
        False, "Bootstrap from the value of the next state if a limit cuts an episode; off: from 0"
    )
    whiten: bool = key(True, "Whiten advantages over the batch: over tokens in ppo, over steps in steppo and chain-gae")


@dataclass
class PpoKeys(GaeKeys, CriticKeys):
    """PPO"""


@dataclass
class ReinforceKeys(PolicyGradientKeys, DiscountKeys):
    """REINFORCE++"""


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: PpoKeys) -> None:
    """Token GAE continued over the rows of a trajectory; advantages whitened over all sampled tokens.

    An episode that was cut by a limit bootstraps 0, or with ``bootstrap_on_truncation`` `Row.value_after`, the value of
    the next prompt. In a tree of calls, a step continues at the first token of the step that reads its result.
    """
    pieces = CreditUnits.of(rows, trajectories)
    values, masks = pieces.cut([_values(row) for row in rows]), pieces.cut([row.mask for row in rows])
    gae = token_gae(
        pieces.cut(penalized_rewards(rows, trajectories, settings.invalid_action_penalty)),
        values,
        masks,
        pieces.following,
        gamma=settings.gamma,
        lam=settings.gae_lambda,
        final_values=[rows[number].value_after for number in pieces.rows],
    )
    advantages, returns = pieces.join(gae.advantages, rows), pieces.join(gae.returns, rows)
    if settings.whiten:
        advantages = whiten_rows(advantages, [row.mask for row in rows])
    for row, advantage, target in zip(rows, advantages, returns, strict=True):
        row.advantages, row.returns = advantage.astype(np.float32), target.astype(np.float32)


def reinforce_credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: ReinforceKeys) -> None:
    """A = whiten(G), G_j = r_j + γ·G_next: the reward-to-go, whitened over all sampled tokens of the batch.

    The return continues across tool outputs and rows, so that both row layouts give the same (verl 0.9).
    """
    pieces = CreditUnits.of(rows, trajectories)
    parts = reward_to_go(
        pieces.cut(penalized_rewards(rows, trajectories, settings.invalid_action_penalty)),
        pieces.cut([row.mask for row in rows]),
        pieces.following,
        gamma=settings.gamma,
    )
    returns = pieces.join(parts, rows)
    for row, values in zip(rows, whiten_rows(returns, [row.mask for row in rows]), strict=True):
        row.advantages = values.astype(np.float32)


def _values(row: Row) -> FloatArray:
    assert row.values is not None, "the critic scores rows before credit"
    return row.values


ALGORITHM = AlgorithmSpec(
    name="ppo",
    summary="REINFORCE with a critic, advantages from GAE over tokens, and clipped importance ratios",
    reference="Schulman et al. 2017 (arXiv 1707.06347), equation 7; GAE: Schulman et al. 2016 (arXiv 1506.02438)",
    credit=credit,
    policy_loss=policy_loss,
    keys=PpoKeys,
    critic=True,
)
REINFORCE_PP = AlgorithmSpec(
    name="reinforce++",
    summary="PPO with the batch mean return as baseline and the KL in the reward; one rollout per task is enough",
    reference="Hu et al. 2025, REINFORCE++ (arXiv 2501.03262), section 3",
    credit=reinforce_credit,
    policy_loss=policy_loss,
    # gamma=1, clip 0.2 are the global defaults; StepPO's scripts give it 0.001.
    defaults={"kl_in_reward_coef": 1e-3},
    keys=ReinforceKeys,
)
