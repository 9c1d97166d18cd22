"""Values of the Markov chain that sampled steps make up, counted as transitions between named states. numpy float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl_agents.advantages.statistics import FloatArray, IntArray

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
    links = _Links.of(steps, rewards, origin, target, weight, chain)
    values: FloatArray = np.zeros(links.visits.size) if start is None else np.array(start, dtype=np.float64)
    for _ in range(MAX_SWEEPS):
        previous, values = values, links.backed_up(values, gamma, prior)
        if np.abs(values - previous).max() < TOLERANCE:
            break
    return values


def values_within(
    steps: ArrayLike, rewards: ArrayLike, origin: ArrayLike, target: ArrayLike, weight: ArrayLike, *,
    turns: int, gamma: float, prior: float,
) -> FloatArray:  # fmt: skip
    """V_h(s) = (W(s) + γ·Σ_s' N(s, s')·V_{h-1}(s') + γ·k·V̄_{h-1})/(N(s) + k), V_0 = 0; float64 [turns + 1, states].

    What a state is worth with h turns left: nothing can be put off beyond the turn limit. Arguments as in
    `chain_values`, where a step that reached the limit is a link and no end.

    Source: ours, docs/algorithms/3spo.md.
    """
    links = _Links.of(steps, rewards, origin, target, weight)
    found = np.zeros((turns + 1, links.visits.size))
    for left in range(1, turns + 1):
        found[left] = links.backed_up(found[left - 1], gamma, prior)
    return found


class _Links(NamedTuple):
    """The counts of a chain: N, W and the number of its chain [states]; ΣN [chains]; s, s' and N(s, s') [links]."""

    visits: FloatArray
    earned: FloatArray
    chain: IntArray
    total: FloatArray
    here: IntArray
    there: IntArray
    weight: FloatArray

    @staticmethod
    def of(
        steps: ArrayLike, rewards: ArrayLike, origin: ArrayLike, target: ArrayLike, weight: ArrayLike,
        chain: ArrayLike | None = None,
    ) -> _Links:  # fmt: skip
        visits, earned, weights = (np.asarray(part, dtype=np.float64) for part in (steps, rewards, weight))
        of = np.zeros(visits.size, dtype=np.int64) if chain is None else np.asarray(chain, dtype=np.int64)
        here, there = (np.asarray(part, dtype=np.int64) for part in (origin, target))
        return _Links(visits, earned, of, np.maximum(np.bincount(of, visits), 1e-300), here, there, weights)

    def backed_up(self, values: FloatArray, gamma: float, prior: float) -> FloatArray:
        """One backup of all states, each chain with its own mean."""
        mean = np.bincount(self.chain, values * self.visits) / self.total
        after = np.where(self.there < 0, values[self.here], values[self.there])
        inflow = np.bincount(self.here, self.weight * after, self.visits.size) + prior * mean[self.chain]
        return np.asarray((self.earned + gamma * inflow) / (self.visits + prior))
