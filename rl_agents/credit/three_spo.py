"""3SPO: state-score guided exploration. Scores, rollout counts and step rewards; no bookkeeping.

A state that keeps succeeding gets a score near 0 and one rollout, an unknown state score 1 and G_max rollouts, a state
that keeps failing is closed. At the published α = 50 and depth >= 2 the count can only be 0, 1 or G_max; graded
allocation needs α near 1. Unlike GiGPO, which compares whatever visits of a state happen to occur, 3SPO branches there
on purpose. Everything is float64: exp(-λ·p) underflows in float32 and would turn "walk through" into "truncate".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.credit.statistics import BoolArray, FloatArray, IntArray

Novelty = Literal["changed", "unseen", "first_in_trajectory", "zero"]
Gate = Literal["score", "count"]


class StateScore(NamedTuple):
    """``score`` S in [0, 1]; ``open``: the gate, false where the state keeps failing (by eq. 1 S = 0 then)."""

    score: FloatArray
    open: BoolArray


def annealing(t: ArrayLike, alpha: float = 50.0) -> FloatArray:
    """λ(t) = α·ln t, 3SPO section 4; t is the 1-based depth (default) or a global trajectory count.

    Raises:
        ValueError: t < 1.
    """
    clock = np.asarray(t, dtype=np.float64)
    if np.any(clock < 1):
        raise ValueError(f"t counts from 1, got {clock.min()}")
    annealed: FloatArray = alpha * np.log(clock)
    return annealed


def state_score(
    total: ArrayLike,
    successes: ArrayLike,
    t: ArrayLike,
    *,
    alpha: float = 50.0,
    xi: float = 10.0,
    zeta: float = 0.1,
    gate: Gate = "score",
    epsilon: float = 1e-6,
) -> StateScore:
    """S = exp(-λ(t)·p)·1{N_fail < ξ or p > ζ}, p = N_succ/(N_total + ε) (3SPO, eq. 1); or S = exp(-λ(t)·p).

    With ``gate="count"`` the indicator is in n(s) alone (`rollout_count`), and not in S. A closed state that never
    succeeded has S = 1 then, and a step to it earns S(s) - 1 <= 0 in eq. 2. By eq. 1 it has S = 0, as a solved end has,
    and the same step earns S(s), the most there is.

    Args:
        total, successes: N_total and N_succ of the state, arrays that broadcast; an unseen state (0, 0) has S = 1.
        t: 1-based depth; at depth 1 λ = 0, so S is 0 or 1.
        alpha: α of `annealing`; 50 in the paper, 1 for graded counts.
        xi: ξ, number of failures from which a state may close (strict <).
        zeta: ζ, success rate that keeps it open (strict >).
        gate: the indicator is part of S (``score``, the paper), or of n(s) only (``count``, ours).
        epsilon: ε.

    Raises:
        ValueError: more successes than visits, or t < 1.
    """
    visits, wins = np.asarray(total, dtype=np.float64), np.asarray(successes, dtype=np.float64)
    if np.any(wins > visits) or np.any(wins < 0):
        raise ValueError("successes must lie between 0 and total")
    rate = wins / (visits + epsilon)
    opened = np.asarray((visits - wins < xi) | (rate > zeta))
    score = np.asarray(np.exp(-annealing(t, alpha) * rate))
    if gate == "score":
        score = np.where(opened, score, 0.0)
    return StateScore(score, np.broadcast_to(opened, score.shape))


def rollout_count(score: ArrayLike, gate: ArrayLike, *, maximum: int = 8) -> IntArray:
    """n = ceil(G_max·S) where the gate is open, at least 1; 0 where it is closed (3SPO, eq. 3).

    n = 0 means drop the path, 1 walk through without an update, n >= 2 branch. Zero comes from the gate only, so that
    a score that underflows still walks through.
    """
    count = np.clip(np.ceil(maximum * np.asarray(score, dtype=np.float64)), 1, maximum)
    gated: IntArray = np.where(np.asarray(gate), count, 0).astype(np.int64)
    return gated


def novelty_weight(total: ArrayLike, *, decay: float = 0.1, fixed: float | None = None) -> FloatArray:
    """ω(N) = ½·exp(-γ_w·N): reward novelty at states seldom visited, progress at familiar ones.

    Args:
        total: N_total of the state before the step.
        decay: γ_w; ω = ¼ at N = ln 2/γ_w.
        fixed: a constant instead (the "w/o adaptive ω" ablation; 0.25).
    """
    visits = np.asarray(total, dtype=np.float64)
    weight: FloatArray = 0.5 * np.exp(-decay * visits) if fixed is None else np.full(visits.shape, fixed)
    return weight


def novelty(
    state: str,
    next_state: str,
    *,
    mode: Novelty = "changed",
    next_total: float = 0,
    path: Collection[str] = (),
) -> float:
    """R_novel in {0, 1} by one of the three readings of the paper; 0 with ``zero``.

    Args:
        state, next_state: state keys (exact observation strings).
        mode: ``changed``: next_state ≠ state (default, the released text);  ``unseen``: N_total(next_state) = 0 before
            this transition;  ``first_in_trajectory``: next_state is not on ``path``.
        next_total: N_total(next_state), for ``unseen``.
        path: states from the start to ``state``, for ``first_in_trajectory``.

    Raises:
        ValueError: unknown mode.
    """
    if mode == "changed":
        return float(next_state != state)
    if mode == "unseen":
        return float(next_total == 0)
    if mode == "first_in_trajectory":
        return float(next_state not in path and next_state != state)
    if mode == "zero":
        return 0.0
    raise ValueError(f"unknown novelty '{mode}': valid: changed, unseen, first_in_trajectory, zero")


def step_reward(
    novel: ArrayLike, progress: ArrayLike, success: ArrayLike, weight: ArrayLike, *, success_weight: float = 0.5
) -> FloatArray:
    """R = ω·R_novel + (½ - ω)·(S(s_t) - S(s_{t+1})) + ½·R_success (3SPO, eq. 2).

    Args:
        novel: R_novel in {0, 1}, see `novelty`.
        progress: S(s_t) - S(s_{t+1}) before the step's own outcome is counted; S = 0 in a solved terminal state.
        success: R_success in {0, 1}, not the environment's scale.
        weight: ω(N_total(s_t)), see `novelty_weight`.
        success_weight: ½ in the paper.
    """
    omega, gained = np.asarray(weight, dtype=np.float64), np.asarray(progress, dtype=np.float64)
    solved = np.asarray(success, dtype=np.float64)
    reward: FloatArray = omega * np.asarray(novel, dtype=np.float64) + (0.5 - omega) * gained + success_weight * solved
    return reward
