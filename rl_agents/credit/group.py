"""Advantages from comparing rollouts of one task: no critic.

  GRPO        (R - μ_g)/(σ_g + ε)
  Dr.GRPO     R - μ_g
  RLOO        n/(n-1)·(R - μ_g)
  NeMo-RL     (R - mean of the others)/(std of the others + ε)
  REINFORCE++ whitened reward-to-go over all tokens of the batch; the baseline variant subtracts μ_g first

The first four take one return per row and give one advantage per row. A row is a trajectory, or a step row that carries
the return of its trajectory; then pass ``trajectories`` and choose what ``statistics`` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.credit.statistics import (
    FloatArray,
    Singleton,
    Statistics,
    counted_units,
    group_normalise,
    group_statistics,
    masked_whiten,
    spread_to_rows,
    trajectory_order,
)


def _over_units(
    estimate: Callable[[FloatArray, FloatArray], FloatArray],
    returns: ArrayLike,
    groups: ArrayLike,
    trajectories: ArrayLike | None,
    statistics: Statistics,
    valid: ArrayLike | None,
) -> FloatArray:
    """Apply ``estimate(returns, groups)`` to the counted units and give every row the result of its unit."""
    values, group = np.asarray(returns, dtype=np.float64), np.asarray(groups)
    if values.shape != group.shape or values.ndim != 1:
        raise ValueError(f"returns and groups must be 1-D of one length, got {values.shape} and {group.shape}")
    units = counted_units(group, trajectories, statistics, valid)
    if trajectories is not None and statistics == "trajectories":
        rows = units.of_row >= 0
        if not np.allclose(values[rows], values[units.first][units.of_row[rows]], rtol=1e-6, atol=1e-9):
            raise ValueError("rows of one trajectory carry different returns")
    return spread_to_rows(estimate(values[units.first], group[units.first]), units.of_row)


def grpo(
    returns: ArrayLike,
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    statistics: Statistics = "trajectories",
    valid: ArrayLike | None = None,
    ddof: int = 1,
    singleton: Singleton = "raw",
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> FloatArray:
    """A_i = (R_i - μ_g)/(σ_g + ε): PPO whose critic is the group mean (Shao et al. 2024, section 4.1).

    Args:
        returns: [rows], R.
        groups: [rows], task instance.
        trajectories, statistics, valid: see `rl_agents.credit.statistics.counted_units`.
        ddof: 1 sample deviation (verl, NeMo-RL), 0 population.
        singleton: group of one: ``raw`` A = R (verl), ``zero`` A = 0.
        epsilon: ε.
        tolerance: returns closer than this count as equal and give exactly 0.
    """

    def estimate(values: FloatArray, group: FloatArray) -> FloatArray:
        return group_normalise(values, group, ddof=ddof, singleton=singleton, epsilon=epsilon, tolerance=tolerance)

    return _over_units(estimate, returns, groups, trajectories, statistics, valid)


def dr_grpo(
    returns: ArrayLike,
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    statistics: Statistics = "trajectories",
    valid: ArrayLike | None = None,
    singleton: Singleton = "raw",
    tolerance: float = 1e-6,
) -> FloatArray:
    """A_i = R_i - μ_g: GRPO without the division by the deviation (Liu et al. 2025, section 3.2).

    Pair it with ``seq-mean-token-sum-norm``, which removes the division by length as well. Arguments as in `grpo`.
    """

    def estimate(values: FloatArray, group: FloatArray) -> FloatArray:
        return group_normalise(values, group, norm="mean", singleton=singleton, tolerance=tolerance)

    return _over_units(estimate, returns, groups, trajectories, statistics, valid)


def rloo(
    returns: ArrayLike,
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    statistics: Statistics = "trajectories",
    valid: ArrayLike | None = None,
    singleton: Singleton = "raw",
    tolerance: float = 1e-6,
) -> FloatArray:
    """A_i = R_i - mean of the others = n/(n-1)·(R_i - μ_g): unbiased Dr.GRPO (Ahmadian et al. 2024, section 3.3).

    Arguments as in `grpo`; a group of one keeps A = R with ``singleton="raw"`` (verl, StepPO).
    """

    def estimate(values: FloatArray, group: FloatArray) -> FloatArray:
        centred = group_normalise(values, group, norm="mean", singleton=singleton, tolerance=tolerance)
        if values.size == 0:
            return centred
        size = group_statistics(values, group).size
        scaled: FloatArray = np.where(size > 1, centred * size / np.maximum(size - 1, 1), centred)
        return scaled

    return _over_units(estimate, returns, groups, trajectories, statistics, valid)


def leave_one_out(
    returns: ArrayLike,
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    statistics: Statistics = "trajectories",
    valid: ArrayLike | None = None,
    divide_by_std: bool = True,
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> FloatArray:
    """A_i = (R_i - μ_{-i})/(σ_{-i} + ε): GRPO with mean and sample deviation of the *other* members (NeMo-RL default).

    σ_{-i}² = (E_o[R²] - E_o[R]²)·n_o/(n_o-1), n_o = n-1. Divide only where σ_{-i} > 0, so never in a group of two;
    a group of one gets 0. Other arguments as in `grpo`.
    """

    def estimate(values: FloatArray, group: FloatArray) -> FloatArray:
        if values.size == 0:
            return values
        stats = group_statistics(values, group, ddof=0, tolerance=tolerance)
        others = np.maximum(stats.size - 1, 1)
        centred = values - stats.mean
        difference = centred + centred / others
        squares = stats.std**2 * stats.size - centred**2
        variance = (squares / others - (centred / others) ** 2) * others / np.maximum(others - 1, 1)
        std = np.sqrt(np.maximum(variance, 0.0))
        divide = divide_by_std & (stats.size > 2) & (std > tolerance * np.maximum(1.0, np.abs(values)))
        scaled = difference / np.where(divide, std + epsilon, 1.0)
        result: FloatArray = np.where(stats.equal | (stats.size == 1), 0.0, scaled)
        return result

    return _over_units(estimate, returns, groups, trajectories, statistics, valid)


def reward_to_go(
    rewards: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    *,
    gamma: float = 1.0,
    trajectories: ArrayLike | None = None,
    step_index: ArrayLike | None = None,
    at_observation: Literal["skip", "reset"] = "skip",
) -> list[FloatArray]:
    """G_j = r_j + γ·G_next over the sampled tokens, 0 elsewhere.

    Args:
        rewards, masks: one [tokens] array per row; rewards on masked tokens are ignored.
        gamma: γ per sampled token.
        trajectories, step_index: [rows]; when given, the return goes on across the step rows of a trajectory, else it
            stays inside a row (then only the last step row of a trajectory sees the outcome).
        at_observation: ``skip``: a masked token is stepped over, so an action keeps its credit across a tool output;
            ``reset``: the running return is multiplied by the mask (verl), which cuts that credit.

    Raises:
        ValueError: unknown ``at_observation``; step indices not contiguous.
    """
    if at_observation not in ("skip", "reset"):
        raise ValueError(f"unknown at_observation '{at_observation}': valid: skip, reset")
    rows = range(len(rewards))
    order = [np.array([row]) for row in rows]
    if trajectories is not None:
        if step_index is None:
            raise ValueError("trajectories needs step_index")
        order = list(trajectory_order(trajectories, step_index))
    result = [np.zeros(np.asarray(row).size) for row in rewards]
    for part in order:
        running = 0.0
        for row in part[::-1]:
            reward, flag = np.asarray(rewards[row], dtype=np.float64), np.asarray(masks[row]) != 0
            for j in range(reward.size - 1, -1, -1):
                if flag[j]:
                    running = float(reward[j]) + gamma * running
                    result[row][j] = running
                elif at_observation == "reset":
                    running = 0.0
    return result


def whiten_rows(
    rows: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    *,
    ddof: int = 1,
    floor: Literal["add", "clamp"] = "add",
) -> list[FloatArray]:
    """Whiten over all sampled tokens of the batch, so that long rows dominate mean and deviation; 0 where masked.

    Raises:
        ValueError: fewer than two sampled tokens in the batch.
    """
    if not len(rows):
        return []
    sizes = [np.asarray(row).size for row in rows]
    flat = masked_whiten(
        np.concatenate([np.asarray(row, dtype=np.float64) for row in rows]),
        np.concatenate([np.asarray(mask) for mask in masks]),
        ddof=ddof,
        floor=floor,
    )
    return list(np.split(flat, np.cumsum(sizes)[:-1]))


def reinforce_plus_plus(
    rewards: Sequence[ArrayLike],
    masks: Sequence[ArrayLike],
    *,
    gamma: float = 1.0,
    trajectories: ArrayLike | None = None,
    step_index: ArrayLike | None = None,
    at_observation: Literal["skip", "reset"] = "skip",
    ddof: int = 1,
    floor: Literal["add", "clamp"] = "add",
) -> list[FloatArray]:
    """A = whiten(G) with G = reward-to-go: PPO with the batch mean as critic, one sample per prompt (Hu et al. 2025).

    Args:
        rewards: outcome on the last token minus β·k1 per token (KL in reward).
        ddof, floor: 1 and ``add`` in verl; 0 and ``clamp`` in NeMo-RL.
        masks, gamma, trajectories, step_index, at_observation: see `reward_to_go`.

    Raises:
        ValueError: fewer than two sampled tokens in the batch.
    """
    returns = reward_to_go(
        rewards,
        masks,
        gamma=gamma,
        trajectories=trajectories,
        step_index=step_index,
        at_observation=at_observation,
    )
    return whiten_rows(returns, masks, ddof=ddof, floor=floor)


def reinforce_plus_plus_baseline(
    returns: ArrayLike,
    masks: Sequence[ArrayLike],
    groups: ArrayLike,
    *,
    trajectories: ArrayLike | None = None,
    statistics: Statistics = "trajectories",
    valid: ArrayLike | None = None,
    ddof: int = 1,
    floor: Literal["add", "clamp"] = "add",
) -> list[FloatArray]:
    """A = whiten over all tokens of (R_i - μ_g): Dr.GRPO with a batch-wide instead of no scale (Hu et al. 2025).

    A group of equal returns gets the whitening offset, not 0. A group of one subtracts nothing.

    Args:
        returns: [rows], R = Σ_j r_j.
        masks: one [tokens] array per row.
        groups, trajectories, statistics, valid: as in `grpo`.
    """
    centred = dr_grpo(returns, groups, trajectories=trajectories, statistics=statistics, valid=valid)
    flags = [(np.asarray(mask) != 0).astype(np.float64) for mask in masks]
    if valid is not None:
        flags = [flag * bool(keep) for flag, keep in zip(flags, np.asarray(valid), strict=True)]
    tokens = [flag * advantage for flag, advantage in zip(flags, centred, strict=True)]
    return whiten_rows(tokens, flags, ddof=ddof, floor=floor)
