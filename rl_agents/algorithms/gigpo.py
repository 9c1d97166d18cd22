"""GiGPO: GRPO among the episodes of a task, and GRPO among actions at the same state (Feng et al. 2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages import FloatArray, IntArray, Std, discounted_returns, grpo
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import OF_CREDIT, GrpoKeys, one_round, policy_loss, select
from rl_agents.config.options import key
from rl_agents.config.sections import DiscountKeys, DynamicSamplingKeys
from rl_agents.data.step_table import StepTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rl_agents.data.samples import Row
    from rl_agents.data.trajectory import Trajectory


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
        step_returns: [steps], G_t minus the step's own penalty, see `rl_agents.advantages.discounted_returns`.
        clusters: [steps], from `anchor_clusters`; a step alone in its cluster gets A^S = 0.
        std: F = σ + ε, or ``none``: F = 1.
    """
    return episode + omega * grpo(step_returns, clusters, std=std)


@dataclass
class StepGroupKeys(GrpoKeys, DiscountKeys):
    """Advantages among steps from the same state"""

    step_norm: Literal["mean", "mean_std"] = key(
        "mean", "Advantages among steps and among episodes: minus the mean, or also divided by the standard deviation"
    )


@dataclass
class GigpoKeys(StepGroupKeys, DynamicSamplingKeys):
    """GiGPO"""

    gigpo_omega: float = key(1.0, "Weight of the step advantage relative to the episode advantage", ge=0)
    gigpo_similarity: float = key(
        0.0, "Text similarity that makes two states the same (verl-agent: 0.95); 0: equality", ge=0, le=1
    )


def credit(rows: Sequence[Row], trajectories: Sequence[Trajectory], settings: GigpoKeys) -> None:
    """A_t = A^E + ω·A^S_t: the episode's advantage in its group, and the step's among steps from the same state.

    A penalty for an unparsable action is subtracted from the step's own discounted return; with statistics over step
    rows also from the episode return that this row carries (verl-agent).
    """
    table = StepTable.build(rows, trajectories, settings.invalid_action_penalty)
    clusters = anchor_clusters(table.anchors, table.groups, similarity=settings.gigpo_similarity)
    advantages = gigpo(
        episode_advantages(table, settings),
        step_returns(table, settings),
        clusters,
        omega=settings.gigpo_omega,
        std=step_std(settings),
    )
    table.spread(rows, advantages)


def step_std(settings: StepGroupKeys) -> Std:
    """The deviation that divides when steps are compared."""
    return "sample" if settings.step_norm == "mean_std" else "none"


def episode_advantages(table: StepTable, settings: StepGroupKeys) -> NDArray[np.float64]:
    """A^E of every step; 0 for an episode alone in its group."""
    statistics = settings.group_statistics
    returns, groups, of_step = table.returns(statistics, penalized=statistics == "step_rows")
    return grpo(returns, groups, std=step_std(settings))[of_step]


def step_returns(table: StepTable, settings: StepGroupKeys) -> NDArray[np.float64]:
    """G_t of every step, minus its own penalty."""
    return discounted_returns(table.rewards, table.following, table.penalties, gamma=settings.gamma)


ALGORITHM = AlgorithmSpec(
    name="gigpo",
    summary="GRPO plus, per step, a second GRPO among all actions that the group took at the same state",
    reference="Feng et al. 2025, GiGPO (arXiv 2505.10978), section 4",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    one_round=one_round,
    defaults={"gamma": 0.95, "kl_coef": 0.01},
    keys=GigpoKeys,
    unread=OF_CREDIT,
    grouped=True,
)
