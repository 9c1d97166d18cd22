"""Discounted returns and generalized advantage estimation, on tokens and on interaction steps.

All recursions run backwards and step over masked tokens: an action keeps the credit for what happens after the tool
output that follows it, and observation tokens consume no discount. They run along *what follows what*: for plain
dialogues the next entry of the trajectory; in a tree of calls several entries may flow into one, and each of them gets
the credit for all that comes after (`rl_agents.data.tree`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages.statistics import FloatArray, backward, masked_mean, masked_var


class Gae(NamedTuple):
    advantages: FloatArray
    returns: FloatArray


class GaeRows(NamedTuple):
    """Advantages and returns G = A + V, one [tokens] array per row, 0 where masked."""

    advantages: list[FloatArray]
    returns: list[FloatArray]


def _backward(
    rewards: ArrayLike, values: ArrayLike, mask: ArrayLike, gamma: float, lam: float, carry: tuple[float, float]
) -> tuple[Gae, tuple[float, float]]:
    """One row of GAE; ``carry`` is (V, A) of the token that follows the row, and of its first token on return."""
    reward, value = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    advantages, returns = np.zeros(reward.size), np.zeros(reward.size)
    next_value, next_advantage = carry
    for j in np.flatnonzero(mask)[::-1]:
        next_advantage = reward[j] + gamma * next_value - value[j] + gamma * lam * next_advantage
        next_value = value[j]
        advantages[j], returns[j] = next_advantage, next_advantage + next_value
    return Gae(advantages, returns), (float(next_value), float(next_advantage))


def token_gae(
    rewards: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    following: ArrayLike,
    *,
    gamma: float,
    lam: float,
    final_values: ArrayLike,
) -> GaeRows:
    """δ_j = r_j + γ·V_next - V_j;  A_j = δ_j + γλ·A_next, over the sampled tokens (Schulman et al. 2016).

    The recursion continues from row to row: the end of a row bootstraps from the first sampled token of the row that
    follows and inherits its advantage; rows without a sampled token are transparent.

    Args:
        rewards, values, masks: one [tokens] array per row: outcome on the last sampled token; value of the prefix
            before the token; 1 on sampled tokens, the others are skipped, whatever they hold.
        following: [rows], the row that follows, negative where the trajectory (or a conversation of it) ends.
        gamma: γ per sampled token.
        final_values: [rows], value after a row that nothing follows: 0 where the task ended; not read elsewhere.

    Returns:
        Un-whitened advantages and returns.

    Raises:
        ValueError: rows follow each other in a circle.
    """
    final, links = np.asarray(final_values, dtype=np.float64), np.asarray(following)
    advantages, returns = [np.zeros(0)] * len(rewards), [np.zeros(0)] * len(rewards)
    first = [(0.0, 0.0)] * len(rewards)
    for row in backward(links):
        carry = first[links[row]] if links[row] >= 0 else (float(final[row]), 0.0)
        (advantages[row], returns[row]), first[row] = _backward(
            rewards[row], values[row], masks[row], gamma, lam, carry
        )
    return GaeRows(advantages, returns)


def step_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    following: ArrayLike,
    *,
    gamma: float,
    lam: float,
    final_values: ArrayLike,
) -> Gae:
    """δ_t = r_t + γ·V_{t+1} - V_t;  A_t = Σ_l (γλ)^l δ_{t+l}: token GAE with an interaction step as the time unit.

    StepPO, eq. 6. V_t is read at the last prompt token of step t. The advantage goes unchanged to every token of the
    step; the 1/L_t comes from the step ratio. t+1 is the step that follows t: in a tree of calls a subagent's last step
    continues at the call that reads its report.

    Args:
        rewards, values: [steps], r_t = sum of the step's token rewards, and V_t.
        following, final_values: as in `token_gae`, [steps].
        gamma: γ per step.

    Returns:
        Un-whitened advantages and returns; see `whiten_steps`.
    """
    reward, value = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    final, links = np.asarray(final_values, dtype=np.float64), np.asarray(following)
    advantages = np.zeros(reward.size)
    for t in backward(links):
        after = links[t]
        next_value, next_advantage = (value[after], advantages[after]) if after >= 0 else (final[t], 0.0)
        advantages[t] = reward[t] + gamma * next_value - value[t] + gamma * lam * next_advantage
    return Gae(advantages, advantages + value)


def gains(
    rewards: ArrayLike, values: ArrayLike, following: ArrayLike, *, gamma: float, final_values: ArrayLike
) -> FloatArray:
    """max(0, G_t - V_t), G_t = Σ_{k>=t} γ^{k-t} r_k: what steps of other policies earned beyond V, and never less.

    Self-imitation (Oh et al. 2018, arXiv 1806.05635, equation 2). G is a lower bound of what can be had from s_t, no
    estimate of what the policy has: where it is below V it says nothing.

    Args:
        rewards, values, following, final_values: as in `step_gae`, [steps].
        gamma: γ per step.
    """
    zeros = np.zeros(np.asarray(rewards).size)
    returns = step_gae(rewards, zeros, following, gamma=gamma, lam=1.0, final_values=final_values).advantages
    return np.maximum(returns - np.asarray(values, dtype=np.float64), 0.0)


def whiten_steps(advantages: ArrayLike) -> FloatArray:
    """(A - mean)/(sample std + 1e-8) over all steps of the batch (StepPO's code, not in its equations).

    Raises:
        ValueError: fewer than two steps, where the deviation is undefined.
    """
    values = np.asarray(advantages, dtype=np.float64)
    everywhere = np.ones(values.size)
    whitened: FloatArray = (values - masked_mean(values, everywhere)) / (np.sqrt(masked_var(values, everywhere)) + 1e-8)
    return whitened


def discounted_returns(rewards: ArrayLike, following: ArrayLike, penalties: ArrayLike, *, gamma: float) -> FloatArray:
    """G_t = Σ_{k>=t} γ^{k-t} r_k over the steps that follow, then minus the step's own penalty (GiGPO, eq. 7).

    The case V = 0, λ = 1 of `step_gae`. Penalties (an unparsable action) are not propagated to earlier steps.

    Args:
        rewards, penalties: [steps]; penalties are non-negative.
        following: [steps], as in `step_gae`.
        gamma: γ per step.
    """
    zeros = np.zeros(np.asarray(rewards).size)
    returns = step_gae(rewards, zeros, following, gamma=gamma, lam=1.0, final_values=zeros).advantages
    return returns - np.asarray(penalties, dtype=np.float64)


def reward_to_go(
    rewards: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    following: ArrayLike,
    *,
    gamma: float,
) -> list[FloatArray]:
    """G_j = r_j + γ·G_next over the sampled tokens of a trajectory, 0 elsewhere (REINFORCE++, Hu et al. 2025).

    A masked token is stepped over, so an action keeps its credit across a tool output and across rows.

    Args:
        rewards, masks, following: as in `token_gae`; rewards on masked tokens are ignored.
        gamma: γ per sampled token.

    Raises:
        ValueError: rows follow each other in a circle.
    """
    result, links = [np.zeros(np.asarray(row).size) for row in rewards], np.asarray(following)
    first = np.zeros(len(rewards))
    for row in backward(links):
        running = float(first[links[row]]) if links[row] >= 0 else 0.0
        reward, flag = np.asarray(rewards[row], dtype=np.float64), np.asarray(masks[row]) != 0
        for j in range(reward.size - 1, -1, -1):
            if flag[j]:
                running = float(reward[j]) + gamma * running
                result[row][j] = running
        first[row] = running
    return result
