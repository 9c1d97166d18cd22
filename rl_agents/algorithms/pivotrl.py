"""PivotRL: GRPO on single turns of expert traces at which the policy sometimes succeeds (arXiv 2603.21383)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages import FloatArray
from rl_agents.algorithms.base import AlgorithmSpec
from rl_agents.algorithms.grpo import GrpoKeys, credit
from rl_agents.algorithms.steppo import RatioLevelKeys, policy_loss
from rl_agents.config.sections import OverlongKeys
from rl_agents.data.selection import Selected, informative_groups
from rl_agents.data.step_table import penalized_return

if TYPE_CHECKING:
    from rl_agents.data.trajectory import Trajectory


class TurnProfile(NamedTuple):
    """Per turn: ``mean`` μ̂ and population ``variance`` σ̂² of the verifier score."""

    mean: FloatArray
    variance: FloatArray


def turn_profile(outcomes: Sequence[ArrayLike]) -> TurnProfile:
    """μ̂ and σ̂² of K verifier scores per turn (PivotRL, section 3); `rl_agents.pivot` chooses by them.

    Raises:
        ValueError: a turn without rollouts.
    """
    turns = [np.asarray(outcome, dtype=np.float64) for outcome in outcomes]
    if any(turn.size == 0 for turn in turns):
        raise ValueError("turn_profile needs at least one rollout per turn")
    mean = np.array([turn.mean() for turn in turns], dtype=np.float64)
    variance = np.array([turn.var() for turn in turns], dtype=np.float64)
    return TurnProfile(mean, variance)


def exact_miss_rate(scores: ArrayLike, exact: ArrayLike) -> float:
    """Pr[r_strict = 0 | r_func = 1]: the share of acceptable actions that exact matching would reject (section 2).

    Args:
        scores: [actions] verifier scores; 1 is acceptable.
        exact: [actions] 1 where the action equals the demonstration.

    Returns:
        NaN where no action is acceptable.
    """
    accepted = np.asarray(scores, dtype=np.float64) >= 1.0
    strict = np.asarray(exact, dtype=np.float64)[accepted]
    return float(1.0 - strict.mean()) if strict.size else float("nan")


@dataclass
class PivotKeys(GrpoKeys, RatioLevelKeys, OverlongKeys):
    """PivotRL"""


def select(trajectories: Sequence[Trajectory], settings: PivotKeys, generator: np.random.Generator) -> Selected:
    """Keep every turn: a turn that has become uniform has advantage 0, and still counts in the loss denominator.

    The metrics show how useful the pivots and the verifier still are: the share of uniform turns, and
    Pr[r_strict = 0 | r_func = 1].
    """
    groups = np.array([t.group_id for t in trajectories])
    if not groups.size:
        return Selected(np.ones(0, dtype=bool))
    scores = np.array([t.episode_return for t in trajectories])
    returns = [penalized_return(t, settings.invalid_action_penalty) for t in trajectories]
    differ = np.unique(groups[informative_groups(returns, groups)]).size
    metrics = {"select/uniform_share": 1.0 - differ / np.unique(groups).size}
    exact = [t.metrics["exact"] for t in trajectories if "exact" in t.metrics]
    if len(exact) == len(scores) and scores.max() >= 1.0:
        metrics["select/exact_miss_rate"] = exact_miss_rate(scores, exact)
    return Selected(np.ones(groups.size, dtype=bool), metrics=metrics)


ALGORITHM = AlgorithmSpec(
    name="pivotrl",
    summary="GRPO on single turns of expert traces where the initial policy sometimes succeeds and sometimes fails",
    reference="PivotRL (arXiv 2603.21383), algorithm 1 and equation 7",
    credit=credit,
    policy_loss=policy_loss,
    select=select,
    one_round=lambda settings: True,
    # Token ratios as in the public code. With its one update per rollout batch all ratios are 1 at any level.
    defaults={"ratio_level": "token", "clip_high": 0.28, "minibatches": 1},
    keys=PivotKeys,
    unread=("overlong_factor", "overlong_cache"),
    grouped=True,
)
