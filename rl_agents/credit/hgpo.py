"""HGPO: GiGPO's step advantage at several depths of history, averaged with weights that favour longer contexts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.credit.gigpo import anchor_key, step_advantages
from rl_agents.credit.statistics import FloatArray, IntArray, Norm, trajectory_order


def context_clusters(
    anchors: Sequence[Any],
    groups: ArrayLike,
    trajectories: ArrayLike,
    step_index: ArrayLike,
    depth: int,
    *,
    valid: ArrayLike | None = None,
) -> IntArray:
    """Number the rows of one task group that share their last ``depth``+1 states, C_k = (s_{t-k}, ..., s_t).

    Depth 0 is GiGPO's anchor group; deeper clusters are nested in shallower ones.

    Returns:
        [rows], -1 where t < depth (no such context near the start) and on padding rows.
    """
    keys = [anchor_key(anchor) for anchor in anchors]
    group = np.asarray(groups).tolist()
    clusters = np.full(len(keys), -1, dtype=np.int64)
    known: dict[tuple[Any, ...], int] = {}
    for part in trajectory_order(trajectories, step_index, valid):
        for t in range(depth, part.size):
            context = (group[part[t]], *(keys[row] for row in part[t - depth : t + 1]))
            clusters[part[t]] = known.setdefault(context, len(known))
    return clusters


def hgpo(
    step_returns: ArrayLike,
    anchors: Sequence[Any],
    groups: ArrayLike,
    trajectories: ArrayLike,
    step_index: ArrayLike,
    *,
    history: int = 2,
    alpha: float = 1.0,
    weight_offset: int = 1,
    norm: Norm = "mean_std",
    base: ArrayLike | None = None,
    valid: ArrayLike | None = None,
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> FloatArray:
    """A = Σ_k w_k·A_k over the depths k = 0..K with A_k ≠ 0;  w_k ∝ (k + offset)^α, normalised over those depths.

    A_k = (G - μ)/(σ_pop + ε) among rows of the group with the same context of k+1 states. With K = 0 this is GiGPO's
    step term with population deviation.

    Args:
        step_returns: [rows], G_t as in GiGPO.
        anchors, groups, trajectories, step_index: [rows].
        history: K, number of earlier states in the prompt (2 or 4).
        alpha: α; 0 weighs all depths alike.
        weight_offset: 1 paper (1:2:3 for K=2), 2 released code (2:3:4).
        norm: ``mean_std`` (ALFWorld) or ``mean`` (WebShop).
        base: [rows], an episode advantage that joins as one more item of weight 1; None (default) for none.
        valid: 0 on padding rows, which get 0.

    Returns:
        [rows]; 0 where no depth has company, or where every depth's advantage is 0.

    Raises:
        ValueError: history negative; step indices not contiguous.
    """
    if history < 0:
        raise ValueError(f"history must not be negative, got {history}")
    returns = np.asarray(step_returns, dtype=np.float64)
    items: list[FloatArray] = []
    for depth in range(history + 1):
        clusters = context_clusters(anchors, groups, trajectories, step_index, depth, valid=valid)
        items.append(step_advantages(returns, clusters, norm=norm, ddof=0, epsilon=epsilon, tolerance=tolerance))
    weights = [float(depth + weight_offset) ** alpha for depth in range(history + 1)]
    if base is not None:
        keep = np.ones(returns.size) if valid is None else np.asarray(valid) != 0
        items.append(np.where(keep, np.asarray(base, dtype=np.float64), 0.0))
        weights.append(1.0)
    stacked = np.stack(items)
    votes = np.where(stacked != 0.0, np.array(weights)[:, None], 0.0)
    total = votes.sum(axis=0)
    averaged: FloatArray = (votes * stacked).sum(axis=0) / np.where(total > 0, total, 1.0)
    return averaged
