"""HGPO: GiGPO's step comparison at several depths of history, with larger weights for deeper ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages import FloatArray, IntArray, Std, grpo
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.gigpo import StepGroupKeys, episode_advantages, step_returns
from rl_agents.algorithms.grpo import OF_CREDIT, policy_loss
from rl_agents.config.options import key
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


def context_clusters(anchors: Sequence[str], groups: ArrayLike, previous: ArrayLike, depth: int) -> IntArray:
    """Number the steps of one task group that share their last ``depth``+1 states, C_k = (s_{t-k}, ..., s_t).

    Depth 0 is GiGPO's anchor group; deeper clusters are nested in shallower ones.

    Args:
        previous: [steps], the previous step of the same conversation, negative for its first.

    Returns:
        [steps], -1 where t < depth (no such context near the start).
    """
    group, back = np.asarray(groups).tolist(), np.asarray(previous, dtype=np.int64)
    clusters = np.full(len(anchors), -1, dtype=np.int64)
    known: dict[tuple[Any, ...], int] = {}
    for step in range(len(anchors)):
        context = [step]
        while len(context) <= depth and back[context[-1]] >= 0:
            context.append(int(back[context[-1]]))
        if len(context) > depth:
            states = (group[step], *(anchors[earlier] for earlier in context))
            clusters[step] = known.setdefault(states, len(known))
    return clusters


def depth_advantages(step_returns: ArrayLike, clusters: IntArray, std: Std) -> FloatArray:
    """A_k = (G - μ)/(σ + ε) among steps with the same context of k+1 states; 0 for a step alone or without context."""
    returns = np.asarray(step_returns, dtype=np.float64)
    advantages, known = np.zeros(returns.size), clusters >= 0
    advantages[known] = grpo(returns[known], clusters[known], std=std)
    return advantages


def hgpo(
    step_returns: ArrayLike,
    anchors: Sequence[str],
    groups: ArrayLike,
    previous: ArrayLike,
    *,
    history: int,
    alpha: float,
    std: Std,
    base: FloatArray | None = None,
) -> FloatArray:
    """A = Σ_k w_k·A_k over the depths k = 0..K with A_k ≠ 0;  w_k ∝ (k + 1)^α, normalized over those depths.

    With K = 0 this is GiGPO's step term. The weights are the paper's, 1:2:3 for K = 2; the released code has 2:3:4. A
    return that equals its cluster's mean up to rounding has A_k = 0 exactly (`rl_agents.advantages.group_statistics`),
    so rounding does not decide whether a depth counts.

    Args:
        step_returns: [steps], G_t as in GiGPO.
        anchors, groups: [steps].
        previous: [steps], see `context_clusters`.
        history: K, number of earlier states in the prompt (2 or 4).
        alpha: α; 0 weighs all depths alike.
        std: ``population`` (ALFWorld) or ``none`` (WebShop), see `depth_advantages`.
        base: [steps], an episode advantage as one more term of weight 1.

    Returns:
        [steps]; 0 where no depth has another step, or where every depth's advantage is 0.
    """
    items: list[FloatArray] = []
    for depth in range(history + 1):
        clusters = context_clusters(anchors, groups, previous, depth)
        items.append(depth_advantages(step_returns, clusters, std))
    weights = [float(depth + 1) ** alpha for depth in range(history + 1)]
    if base is not None:
        items.append(base)
        weights.append(1.0)
    stacked = np.stack(items)
    votes = np.where(stacked != 0.0, np.array(weights)[:, None], 0.0)
    total = votes.sum(axis=0)
    averaged: FloatArray = (votes * stacked).sum(axis=0) / np.where(total > 0, total, 1.0)
    return averaged


@dataclass
class HgpoKeys(StepGroupKeys):
    """HGPO"""

    hgpo_history: int = key(2, "Number of earlier states in the deepest context (K)", ge=0)
    hgpo_alpha: float = key(1.0, "Exponent that favors deep contexts; 0: all depths have the same weight", ge=0)
    hgpo_base: bool = key(False, "Include the episode advantage as one more term with weight 1")


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: HgpoKeys) -> None:
    """A = Σ_k w_k·A_k, A_k among the group's steps with the same last k+1 states, w_k ∝ (k + 1)^α.

    A step that shares no state with another gets 0, unless ``hgpo_base`` adds the episode advantage.
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    advantages = hgpo(
        step_returns(table, settings),
        table.anchors,
        table.groups,
        table.previous,
        history=settings.hgpo_history,
        alpha=settings.hgpo_alpha,
        std="population" if settings.step_norm == "mean_std" else "none",
        base=episode_advantages(table, settings) if settings.hgpo_base else None,
    )
    table.spread(rows, advantages)


ALGORITHM = AlgorithmSpec(
    name="hgpo",
    summary="GiGPO's step advantage averaged over contexts of several depths, long shared histories weighing more",
    reference="HGPO (arXiv 2602.22817); the step term is GiGPO (arXiv 2505.10978), equation 8",
    credit=credit,
    policy_loss=policy_loss,
    defaults={"gamma": 0.95, "kl_coef": 0.01, "step_norm": "mean_std"},
    keys=HgpoKeys,
    unread=OF_CREDIT,
    grouped=True,
)
