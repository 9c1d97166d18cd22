"""What returns said beyond the values of states, by transition: where a state's name leaves something out.

V(s') judges a step by the name of the state that it led to. Where the name hides what the step achieved (a key that was
taken), step GAE with a low λ hardly sees it; the return does, with much noise. Its mean over the visits of a transition
has less:

    b(s, s') = Σ (A^1 - A^λ) / (N(s, s') + k)

A^λ is step GAE, A^1 the same with λ = 1, k visits said nothing. Where names say all, the mean of A^1 - A^λ is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl_agents.advantages.statistics import FloatArray
from rl_agents.rollout.tree_search.chain import LEAST_WEIGHT
from rl_agents.rollout.tree_search.states import MAX_STATES

#: A transition of two named states.
Pair = tuple[str, str]


class TransitionMeans:
    """Sums of A^1 - A^λ and numbers of visits, by the names of a state and of the next one.

    Args:
        prior: k.
        most: pairs that are kept; beyond, those least recently visited are forgotten.
    """

    def __init__(self, prior: float, most: int = MAX_STATES) -> None:
        self.prior, self.most = prior, most
        #: Visits, and what returns said beyond; least recently visited first.
        self._sums: dict[Pair, tuple[float, float]] = {}

    def faded(self, factor: float) -> TransitionMeans:
        """Return these with all sums multiplied, without what is nearly nothing; they stay as they are."""
        found = TransitionMeans(self.prior, self.most)
        found._sums = {
            pair: (visits * factor, beyond * factor)
            for pair, (visits, beyond) in self._sums.items()
            if visits * factor > LEAST_WEIGHT
        }
        return found

    def count(self, pairs: Sequence[Pair], beyond: Sequence[float]) -> None:
        """Count one visit of each pair."""
        for pair, value in zip(pairs, beyond, strict=True):
            visits, total = self._sums.pop(pair, (0.0, 0.0))
            self._sums[pair] = (visits + 1.0, total + value)
        while len(self._sums) > self.most:
            del self._sums[next(iter(self._sums))]

    def corrections(self, pairs: Sequence[Pair]) -> FloatArray:
        """b of each pair, float64; 0 of one that was never counted."""
        sums = (self._sums.get(pair, (0.0, 0.0)) for pair in pairs)
        return np.array([beyond / (visits + self.prior) for visits, beyond in sums], dtype=np.float64)

    # --- checkpoints -------------------------------------------------------------------------------------------

    def to_json(self) -> list[Any]:
        """Plain data; `load_json` is its inverse."""
        return [[*pair, *sums] for pair, sums in self._sums.items()]

    def load_json(self, data: Sequence[Sequence[Any]]) -> None:
        """Replace everything by what `to_json` returned."""
        self._sums = {(str(here), str(there)): (float(n), float(d)) for here, there, n, d in data}
