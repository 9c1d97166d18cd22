"""What a search may know of states in place of 3SPO's counts: readings that are tried here, not in the product."""

from __future__ import annotations

import numpy as np

from rl_agents.algorithms.three_spo import ChainRates, StateCounts, ThreeSpoKeys
from rl_agents.search.states import Outcomes


class UntilSolved(StateCounts):
    """ω(N) until a state was solved, and 0 from then on: novelty looks for success, it does not compete with it."""

    def visits(self, key: str) -> float:
        """N_total, or infinity where success is known."""
        total, successes = self.count(key)
        return np.inf if successes else total


class BySolved(StateCounts):
    """ω(N_succ): novelty fades with each success, and only with success."""

    def visits(self, key: str) -> float:
        """N_succ."""
        return self.count(key)[1]


class BySamples(StateCounts):
    """ω(samples at the state): what never ends is no longer new either."""

    def __init__(self, settings: ThreeSpoKeys) -> None:
        super().__init__(settings)
        self.sampled: dict[str, int] = {}

    def visits(self, key: str) -> float:
        """Actions sampled at the state."""
        return self.sampled.get(key, 0)

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the samples."""
        self.sampled[key] = self.sampled.get(key, 0) + len(outcomes.keys)


class KnownWay(ChainRates):
    """p of the chain; ω(N) until a sampled way leads from the state to a success, and 0 from then on."""

    def __init__(self, settings: ThreeSpoKeys) -> None:
        super().__init__(settings)
        self.leads: set[str] = set()
        self.before: dict[str, set[str]] = {}

    def visits(self, key: str) -> float:
        """Actions sampled at the state, or infinity where a way is known."""
        return np.inf if key in self.leads else super().visits(key)

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the samples, and walk back from new successes."""
        super().observe(key, outcomes)
        waiting = [key] if any(outcomes.solved) else []
        for child, ended in zip(outcomes.keys, outcomes.ended, strict=True):
            if not ended:
                self.before.setdefault(child, set()).add(key)
                waiting += [key] if child in self.leads else []
        while waiting:
            state = waiting.pop()
            if state not in self.leads:
                self.leads.add(state)
                waiting += self.before.get(state, ())
