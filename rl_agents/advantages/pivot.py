"""PivotRL: what profiling with the initial policy says about the turns of expert trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages.statistics import FloatArray


class TurnProfile(NamedTuple):
    """Per turn: ``mean`` μ̂ and population ``variance`` σ̂² of the verifier score."""

    mean: FloatArray
    variance: FloatArray


def turn_profile(outcomes: Sequence[ArrayLike]) -> TurnProfile:
    """μ̂ and σ̂² of K verifier scores per turn (PivotRL, section 3); `rl_agents.pivot.filter` chooses by them.

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
    """Pr[r_strict = 0 | r_func = 1]: the share of acceptable actions that exact matching would refuse (section 2).

    Args:
        scores: [actions] verifier scores; 1 is acceptable.
        exact: [actions] 1 where the action equals the demonstration.

    Returns:
        NaN where no action is acceptable.
    """
    accepted = np.asarray(scores, dtype=np.float64) >= 1.0
    strict = np.asarray(exact, dtype=np.float64)[accepted]
    return float(1.0 - strict.mean()) if strict.size else float("nan")
