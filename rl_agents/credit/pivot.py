"""PivotRL: which turns of an expert trajectory are worth training on, from profiling with the initial policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.credit.statistics import BoolArray, FloatArray


class TurnProfile(NamedTuple):
    """Per turn: ``mean`` μ̂ and population ``variance`` σ̂² of the verifier score, and whether the turn is a pivot."""

    mean: FloatArray
    variance: FloatArray
    keep: BoolArray


def turn_profile(
    outcomes: Sequence[ArrayLike], *, maximum_mean: float = 0.6, minimum_variance: float = 1e-9
) -> TurnProfile:
    """Keep a turn when σ̂² > 0 and μ̂ < λ_diff: mixed outcomes, and not too easy (PivotRL, section 3).

    The offline counterpart of DAPO's dynamic sampling, done once with the frozen initial policy.

    Args:
        outcomes: one [K] array of verifier scores per turn (K = 8 rollouts by default elsewhere).
        maximum_mean: λ_diff (strict <); unpublished, 0.6 here.
        minimum_variance: tolerance for "σ̂² > 0" with continuous scores.

    Raises:
        ValueError: a turn without rollouts.
    """
    turns = [np.asarray(outcome, dtype=np.float64) for outcome in outcomes]
    if any(turn.size == 0 for turn in turns):
        raise ValueError("turn_profile needs at least one rollout per turn")
    mean = np.array([turn.mean() for turn in turns], dtype=np.float64)
    variance = np.array([turn.var() for turn in turns], dtype=np.float64)
    return TurnProfile(mean, variance, (variance > minimum_variance) & (mean < maximum_mean))


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
