"""Discounted returns and generalised advantage estimation, on tokens and on interaction steps.

All recursions run backwards and step over masked tokens: an action keeps the credit for what happens after the tool
output that follows it, and observation tokens consume no discount.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.credit.statistics import FloatArray, masked_whiten, trajectory_order


class Gae(NamedTuple):
    """Advantages and returns G = A + V of one row or of step rows; 0 where masked."""

    advantages: FloatArray
    returns: FloatArray


class GaeRows(NamedTuple):
    """Advantages and returns of several rows, one array per row."""

    advantages: list[FloatArray]
    returns: list[FloatArray]


def _backward(
    rewards: ArrayLike, values: ArrayLike, mask: ArrayLike, gamma: float, lam: float, carry: tuple[float, float]
) -> tuple[Gae, tuple[float, float]]:
    """One row of GAE; ``carry`` is (V, A) of the token that follows the row, and of its first token on return."""
    reward, value = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    flag = np.asarray(mask) != 0
    advantages, returns = np.zeros(reward.size), np.zeros(reward.size)
    next_value, next_advantage = carry
    for j in np.flatnonzero(flag)[::-1]:
        next_advantage = reward[j] + gamma * next_value - value[j] + gamma * lam * next_advantage
        next_value = value[j]
        advantages[j], returns[j] = next_advantage, next_advantage + next_value
    return Gae(advantages, returns), (float(next_value), float(next_advantage))


def token_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    mask: ArrayLike,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    bootstrap: float = 0.0,
) -> Gae:
    """δ_j = r_j + γ·V_next - V_j;  A_j = δ_j + γλ·A_next, over the sampled tokens of one row (Schulman et al. 2016).

    Args:
        rewards: [tokens], outcome on the last sampled token.
        values: [tokens], V_j = value of the prefix before token j (critic output shifted by one).
        mask: [tokens], 1 on sampled tokens; the others are skipped, whatever they hold.
        gamma: γ per sampled token.
        lam: λ.
        bootstrap: value after the last token: 0 when the task ended, the critic's value when it was cut from outside.

    Returns:
        Un-whitened advantages and returns, 0 on masked tokens.
    """
    return _backward(rewards, values, mask, gamma, lam, (bootstrap, 0.0))[0]


def _bootstrap(
    order: list[np.ndarray], rows: int, truncated: ArrayLike | None, final_values: ArrayLike | None, enabled: bool
) -> FloatArray:
    """Value after the last step of every trajectory: 0, or ``final_values`` where it was truncated and enabled."""
    if not enabled:
        return np.zeros(len(order))
    if truncated is None or final_values is None:
        raise ValueError("bootstrap_on_truncation needs truncated and final_values")
    cut, value = np.asarray(truncated, dtype=bool), np.asarray(final_values, dtype=np.float64)
    if cut.size != rows or value.size != rows:
        raise ValueError(f"truncated has {cut.size} and final_values {value.size} entries for {rows} rows")
    return np.array([value[part[-1]] if cut[part[-1]] else 0.0 for part in order], dtype=np.float64)


def token_gae_rows(
    rewards: Sequence[ArrayLike],
    values: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    trajectories: ArrayLike,
    step_index: ArrayLike,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    bootstrap_on_truncation: bool = False,
    valid: ArrayLike | None = None,
) -> GaeRows:
    """Token GAE that goes on from step row to step row: `token_gae` on the concatenated trajectory.

    The end of row t bootstraps from the first sampled token of row t+1 and inherits its advantage; rows without a
    sampled token are transparent (the token-GAE arm of StepPO's ablation).

    Args:
        rewards, values, masks: one [tokens] array per row.
        trajectories, step_index: [rows]; step indices are 0..T-1 per trajectory.
        truncated: [rows], read at the last row of a trajectory: cut by a turn or context limit.
        final_values: [rows], read at the same row: critic's value of the state after it.
        bootstrap_on_truncation: use ``final_values`` where truncated; off, as in all published code.
        valid: [rows], 0 on padding rows, which get zeros.

    Raises:
        ValueError: step indices not contiguous; bootstrap wanted without its arrays.
    """
    order = trajectory_order(trajectories, step_index, valid)
    start = _bootstrap(order, len(rewards), truncated, final_values, bootstrap_on_truncation)
    advantages = [np.zeros(np.asarray(row).size) for row in rewards]
    returns = [np.zeros(np.asarray(row).size) for row in rewards]
    for part, value in zip(order, start, strict=True):
        carry = (float(value), 0.0)
        for row in part[::-1]:
            (advantages[row], returns[row]), carry = _backward(rewards[row], values[row], masks[row], gamma, lam, carry)
    return GaeRows(advantages, returns)


def step_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    trajectories: ArrayLike,
    step_index: ArrayLike,
    *,
    gamma: float = 0.99,
    lam: float = 1.0,
    truncated: ArrayLike | None = None,
    final_values: ArrayLike | None = None,
    bootstrap_on_truncation: bool = False,
    valid: ArrayLike | None = None,
) -> Gae:
    """δ_t = r_t + γ·V_{t+1} - V_t;  A_t = Σ_l (γλ)^l δ_{t+l}: token GAE with an interaction step as the time unit.

    StepPO, eq. 6. V_t is read at the last prompt token of step t. The advantage goes unchanged to every token of the
    step; the 1/L_t comes from the step ratio.

    Args:
        rewards: [rows], r_t = sum of the step's token rewards.
        values: [rows], V_t.
        trajectories, step_index, truncated, final_values, bootstrap_on_truncation, valid: as in `token_gae_rows`.
        gamma: γ per step (paper 0.99).
        lam: λ (paper 1).

    Returns:
        [rows] un-whitened advantages and returns; see `whiten_steps`.
    """
    reward, value = np.asarray(rewards, dtype=np.float64), np.asarray(values, dtype=np.float64)
    order = trajectory_order(trajectories, step_index, valid)
    start = _bootstrap(order, reward.size, truncated, final_values, bootstrap_on_truncation)
    advantages, returns = np.zeros(reward.size), np.zeros(reward.size)
    for part, final in zip(order, start, strict=True):
        carry = (float(final), 0.0)
        (advantages[part], returns[part]), _ = _backward(
            reward[part], value[part], np.ones(part.size), gamma, lam, carry
        )
    return Gae(advantages, returns)


def whiten_steps(advantages: ArrayLike, valid: ArrayLike | None = None, *, epsilon: float = 1e-8) -> FloatArray:
    """(A - mean)/(sample std + ε) over all step rows of the batch (StepPO's code, not in its equations).

    Raises:
        ValueError: fewer than two valid rows, where the deviation is undefined.
    """
    values = np.asarray(advantages, dtype=np.float64)
    keep = np.ones(values.size) if valid is None else valid
    return masked_whiten(values, keep, epsilon=epsilon, floor="add_to_std")


def discounted_returns(
    rewards: ArrayLike,
    trajectories: ArrayLike,
    step_index: ArrayLike,
    *,
    gamma: float = 0.95,
    penalties: ArrayLike | None = None,
    valid: ArrayLike | None = None,
) -> FloatArray:
    """G_t = Σ_{k>=t} γ^{k-t} r_k within a trajectory, then minus the step's own penalty (GiGPO, eq. 7).

    The case V = 0, λ = 1 of `step_gae`. Penalties (an unparsable action) are not propagated to earlier steps.

    Args:
        rewards, trajectories, step_index, valid: [rows].
        gamma: γ per step.
        penalties: [rows], non-negative, subtracted after discounting.
    """
    reward = np.asarray(rewards, dtype=np.float64)
    zeros = np.zeros(reward.size)
    returns = step_gae(reward, zeros, trajectories, step_index, gamma=gamma, lam=1.0, valid=valid).advantages
    if penalties is None:
        return returns
    keep = np.ones(reward.size, dtype=bool) if valid is None else np.asarray(valid) != 0
    penalised: FloatArray = np.where(keep, returns - np.asarray(penalties, dtype=np.float64), 0.0)
    return penalised
