"""GiGPO: GRPO between episodes plus GRPO between actions taken at the same state (Feng et al. 2025)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.credit.group import dr_grpo, grpo
from rl_agents.credit.statistics import FloatArray, IntArray, Norm, Statistics, group_normalise


def anchor_key(observation: Any) -> str:
    """One string per distinct observation: text as it is, containers as JSON with sorted keys, arrays as lists.

    Text is compared exactly: trailing whitespace makes another state.
    """
    if isinstance(observation, str):
        return observation

    def plain(value: Any) -> Any:
        return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)

    return json.dumps(observation, sort_keys=True, default=plain)


def anchor_clusters(
    anchors: Sequence[Any],
    groups: ArrayLike,
    *,
    similarity: float | None = None,
    valid: ArrayLike | None = None,
) -> IntArray:
    """Number the anchor groups: rows of one task group with the same anchor observation.

    Args:
        anchors: [rows], observations; the same state visited twice in a trajectory gives two members.
        groups: [rows]; clusters never cross them.
        similarity: None for equality. Else a row joins the first cluster, in row order, whose first member has a
            SequenceMatcher ratio >= similarity (0.95 in verl-agent, 0.9 for search); this depends on the row order.
        valid: [rows], 0 on padding rows.

    Returns:
        [rows] cluster numbers, -1 on padding rows.

    Raises:
        ValueError: similarity outside (0, 1].
    """
    if similarity is not None and not 0.0 < similarity <= 1.0:
        raise ValueError(f"similarity must be in (0, 1], got {similarity}")
    keep = np.ones(len(anchors), dtype=bool) if valid is None else np.asarray(valid) != 0
    clusters = np.full(len(anchors), -1, dtype=np.int64)
    representatives: dict[Any, list[tuple[str, int]]] = {}
    exact: dict[tuple[Any, str], int] = {}
    count = 0
    for row, (group, anchor) in enumerate(zip(np.asarray(groups).tolist(), anchors, strict=True)):
        if not keep[row]:
            continue
        key = anchor_key(anchor)
        found = exact.get((group, key))
        if found is None and similarity is not None:
            found = _first_similar(key, representatives.get(group, []), similarity)
        if found is None:
            found, count = count, count + 1
            exact[(group, key)] = found
            representatives.setdefault(group, []).append((key, found))
        clusters[row] = found
    return clusters


def _first_similar(key: str, representatives: list[tuple[str, int]], similarity: float) -> int | None:
    for text, cluster in representatives:
        if SequenceMatcher(None, key, text).ratio() >= similarity:
            return cluster
    return None


def step_advantages(
    step_returns: ArrayLike,
    clusters: ArrayLike,
    *,
    norm: Norm = "mean",
    ddof: int = 1,
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> FloatArray:
    """A^S_t = (G_t - μ_cluster)/F_cluster, 0 in a cluster of one (GiGPO, eq. 8).

    Args:
        step_returns: [rows], discounted return from the step on, see `rl_agents.credit.gae.discounted_returns`.
        clusters: [rows], from `anchor_clusters`; negative rows get 0.
        norm: ``mean_std``: F = σ + ε;  ``mean``: F = 1.
    """
    values, cluster = np.asarray(step_returns, dtype=np.float64), np.asarray(clusters)
    advantages = np.zeros(values.size)
    rows = cluster >= 0
    advantages[rows] = group_normalise(
        values[rows], cluster[rows], norm=norm, ddof=ddof, singleton="zero", epsilon=epsilon, tolerance=tolerance
    )
    return advantages


def gigpo(
    episode_returns: ArrayLike,
    step_returns: ArrayLike,
    anchors: Sequence[Any],
    groups: ArrayLike,
    trajectories: ArrayLike,
    *,
    omega: float = 1.0,
    norm: Norm = "mean",
    statistics: Statistics = "trajectories",
    similarity: float | None = None,
    valid: ArrayLike | None = None,
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> FloatArray:
    """A_t = A^E + ω·A^S_t: GRPO's episode advantage plus a GRPO among the actions taken at the same state.

    Args:
        episode_returns: [step rows], R(τ) repeated on every step of its trajectory.
        step_returns: [step rows], G_t (γ = 0.95) less the step's own penalty.
        anchors: [step rows], observation before the action, without history.
        groups, trajectories: [step rows].
        omega: ω.
        norm: ``mean`` (WebShop, default of the code) or ``mean_std`` (ALFWorld), for both terms.
        statistics: what the episode term counts: ``trajectories`` (paper) or ``step_rows`` (verl-agent default).
        similarity: see `anchor_clusters`.
        valid: 0 on padding rows, which get 0.

    Returns:
        [step rows]; an episode group of one keeps R (mean 0, std 1), a step cluster of one gets 0.
    """
    if norm == "mean":
        episode = dr_grpo(
            episode_returns,
            groups,
            trajectories=trajectories,
            statistics=statistics,
            valid=valid,
            tolerance=tolerance,
        )
    else:
        episode = grpo(
            episode_returns,
            groups,
            trajectories=trajectories,
            statistics=statistics,
            valid=valid,
            epsilon=epsilon,
            tolerance=tolerance,
        )
    clusters = anchor_clusters(anchors, groups, similarity=similarity, valid=valid)
    step = step_advantages(step_returns, clusters, norm=norm, epsilon=epsilon, tolerance=tolerance)
    combined: FloatArray = episode + omega * step
    return combined
