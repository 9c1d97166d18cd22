"""GiGPO: GRPO between episodes plus GRPO between actions taken at the same state (Feng et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages.group import Std, grpo
from rl_agents.advantages.statistics import FloatArray, IntArray


def anchor_clusters(anchors: Sequence[str], groups: ArrayLike, *, similarity: float = 0.0) -> IntArray:
    """Number the anchor groups: steps of one task group with the same anchor observation.

    Args:
        anchors: [steps], compared exactly, whitespace included; the same state visited twice in a trajectory gives two
            members.
        groups: [steps]; clusters never cross them.
        similarity: 0 for equality. Else a step joins the first cluster, in order, whose first member has a
            SequenceMatcher ratio >= similarity (0.95 in verl-agent, 0.9 for search); this depends on the order.

    Returns:
        [steps] cluster numbers.
    """
    clusters = np.zeros(len(anchors), dtype=np.int64)
    representatives: dict[Any, list[tuple[str, int]]] = {}
    exact: dict[tuple[Any, str], int] = {}
    count = 0
    for step, (group, anchor) in enumerate(zip(np.asarray(groups).tolist(), anchors, strict=True)):
        found = exact.get((group, anchor))
        if found is None and similarity:
            found = _first_similar(anchor, representatives.get(group, []), similarity)
        if found is None:
            found, count = count, count + 1
            exact[(group, anchor)] = found
            representatives.setdefault(group, []).append((anchor, found))
        clusters[step] = found
    return clusters


def _first_similar(anchor: str, representatives: list[tuple[str, int]], similarity: float) -> int | None:
    for text, cluster in representatives:
        if SequenceMatcher(None, anchor, text).ratio() >= similarity:
            return cluster
    return None


def gigpo(episode: FloatArray, step_returns: ArrayLike, clusters: ArrayLike, *, omega: float, std: Std) -> FloatArray:
    """A_t = A^E + ω·A^S_t;  A^S_t = (G_t - μ)/F among the actions taken at the same state (GiGPO, eq. 8).

    Args:
        episode: [steps], A^E: the episode's advantage in its task group.
        step_returns: [steps], G_t less the step's own penalty, see `rl_agents.advantages.gae.discounted_returns`.
        clusters: [steps], from `anchor_clusters`; a step alone in its cluster gets A^S = 0.
        std: F = σ + ε, or ``none``: F = 1.
    """
    return episode + omega * grpo(step_returns, clusters, std=std)
