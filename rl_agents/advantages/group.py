"""Advantages from comparing rollouts of one task: no critic.

  GRPO        (R - μ_g)/(σ_g + ε)
  Dr.GRPO     R - μ_g
  RLOO        R - mean of the others = n/(n-1)·(R - μ_g)
  NeMo-RL     (R - mean of the others)/(std of the others + ε)

Arrays are [n]: return, group and advantage of n rollouts; `rl_agents.data.step_table.StepTable.returns` chooses what
counts as one. A return that equals its group's mean up to rounding gets exactly 0: noise divided by ε would not be
small, and what counts advantages other than 0 (HGPO) must not count noise.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages.statistics import FloatArray, IntArray

Std = Literal["sample", "population", "none"]
Singleton = Literal["raw", "zero"]
EPSILON = 1e-6
#: Returns that differ by at most this share of the largest (or of 1) are equal.
TOLERANCE = 1e-6
#: A return is its group's mean when it differs by at most this share of the above: float64 noise, and no more.
ROUNDING = 1e-6


class Groups(NamedTuple):
    """Of the group of every return, [n]: members, μ (the return itself where it equals μ) and Σ(R - μ)²."""

    size: IntArray
    mean: FloatArray
    squares: FloatArray


def group_statistics(returns: FloatArray, groups: ArrayLike) -> Groups:
    """Size, mean and squared deviations of the groups; equal numbers in ``groups`` form one."""
    index = np.unique(groups, return_inverse=True)[1].reshape(-1)
    size = np.bincount(index)
    mean = np.bincount(index, weights=returns) / size
    squares: FloatArray = np.bincount(index, weights=(returns - mean[index]) ** 2).astype(np.float64)
    low, high = np.full(size.size, np.inf), np.full(size.size, -np.inf)
    np.minimum.at(low, index, returns)
    np.maximum.at(high, index, returns)
    noise = TOLERANCE * np.maximum(1.0, np.maximum(np.abs(high), np.abs(low)))
    average = (high - low <= noise)[index] | (np.abs(returns - mean[index]) <= ROUNDING * noise[index])
    return Groups(size[index], np.where(average, returns, mean[index]), squares[index])


def grpo(returns: ArrayLike, groups: ArrayLike, *, std: Std = "sample", singleton: Singleton = "zero") -> FloatArray:
    """A = (R - μ_g)/(σ_g + ε): PPO whose critic is the group mean (Shao et al. 2024, section 4.1).

    Args:
        std: σ_g with ddof 1 (verl, NeMo-RL) or 0; ``none`` is Dr.GRPO, A = R - μ_g (Liu et al. 2025, section 3.2).
        singleton: A of a group of one: 0, or ``raw``: R (verl).
    """
    rewards = np.asarray(returns, dtype=np.float64)
    size, mean, squares = group_statistics(rewards, groups)
    advantages = rewards - mean
    if std != "none":
        ddof = 1 if std == "sample" else 0
        advantages = advantages / (np.sqrt(squares / np.maximum(size - ddof, 1)) + EPSILON)
    return np.where(size == 1, rewards, advantages) if singleton == "raw" else advantages


def rloo(returns: ArrayLike, groups: ArrayLike, *, singleton: Singleton = "zero") -> FloatArray:
    """A = R - mean of the others = n/(n-1)·(R - μ_g): unbiased Dr.GRPO (Ahmadian et al. 2024, section 3.3)."""
    rewards = np.asarray(returns, dtype=np.float64)
    size, mean, _ = group_statistics(rewards, groups)
    advantages = (rewards - mean) * size / np.maximum(size - 1, 1)
    return np.where(size == 1, rewards, advantages) if singleton == "raw" else advantages


def leave_one_out(returns: ArrayLike, groups: ArrayLike) -> FloatArray:
    """A = (R - μ_o)/(σ_o + ε), mean and sample deviation of the n_o = n-1 *other* members (NeMo-RL default).

    σ_o² = (E_o[R²] - E_o[R]²)·n_o/(n_o-1). Divided only where σ_o > 0, so never in a group of two; a group of one
    gets 0.
    """
    rewards = np.asarray(returns, dtype=np.float64)
    size, mean, squares = group_statistics(rewards, groups)
    others, centered = np.maximum(size - 1, 1), rewards - mean
    variance = (squares - centered**2) / others - (centered / others) ** 2
    std = np.sqrt(np.maximum(variance * others / np.maximum(others - 1, 1), 0.0))
    divide = (size > 2) & (std > TOLERANCE * np.maximum(1.0, np.abs(rewards)))
    advantages: FloatArray = rloo(rewards, groups) / np.where(divide, std + EPSILON, 1.0)
    return advantages
