"""Values of the Markov chain that sampled steps make up, counted as transitions between named states. numpy float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages.statistics import FloatArray

MAX_SWEEPS, TOLERANCE = 200, 1e-5


def chain_values(
    steps: ArrayLike,
    rewards: ArrayLike,
    origin: ArrayLike,
    target: ArrayLike,
    weight: ArrayLike,
    *,
    gamma: float,
    prior: float,
    chain: ArrayLike | None = None,
    start: ArrayLike | None = None,
) -> FloatArray:
    """V(s) = (W(s) + γ·Σ_s' N(s, s')·V(s') + γ·k·V̄)/(N(s) + k), V̄ = Σ N·V/Σ N; float64 [states].

    N(s) steps were sampled at s, N(s, s') of them led to s', the others ended, W(s) is the sum of their rewards; k
    prior steps lead to an average state. Where a reward is 1 for an end that is solved, and else 0, W(s) counts the
    solved ones and V is in [0, 1]. Swept until nothing moves.

    Args:
        steps, rewards: [states], N and W.
        origin, target, weight: [links], the states s and s' of a link and N(s, s'); a target below 0 is a state at
            which nothing was sampled, as good as its parent.
        gamma: γ per step.
        prior: k > 0.
        chain: [states], the number of a state's chain where there are several, each with its own V̄; None: one.
        start: [states], values to sweep from; None: 0.

    Source: ours, docs/algorithms/chain-gae.md.
    """
    count, earned = np.asarray(steps, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    here, there = np.asarray(origin, dtype=np.int64), np.asarray(target, dtype=np.int64)
    links = np.asarray(weight, dtype=np.float64)
    of = np.zeros(count.size, dtype=np.int64) if chain is None else np.asarray(chain, dtype=np.int64)
    total = np.maximum(np.bincount(of, count), 1e-300)
    values: FloatArray = np.zeros(count.size) if start is None else np.array(start, dtype=np.float64)
    unknown = there < 0
    for _ in range(MAX_SWEEPS):
        mean = np.bincount(of, values * count) / total
        after = np.where(unknown, values[here], values[there])
        inflow = np.bincount(here, links * after, count.size) + prior * mean[of]
        previous, values = values, (earned + gamma * inflow) / (count + prior)
        if np.abs(values - previous).max() < TOLERANCE:
            break
    return values
