"""chain-search: the search of 3SPO over states whose values come from the Markov chain of all sampled steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rl_agents.algorithms.base import Recipe
from rl_agents.algorithms.gigpo import StepNormKeys
from rl_agents.algorithms.grpo import DualClipKeys, policy_loss
from rl_agents.algorithms.three_spo import credit
from rl_agents.credit.statistics import FloatArray
from rl_agents.credit.three_spo import StateScore, state_score
from rl_agents.search.chain import StateChain
from rl_agents.search.states import Outcomes
from rl_agents.settings.search import ChainKeys, SearchKeys


@dataclass
class ChainSearchKeys(SearchKeys, StepNormKeys, DualClipKeys, ChainKeys):
    """chain-search."""


class ChainValues:
    """V(s) of the chain of all sampled steps (`rl_agents.search.chain`), and scores without a gate from it.

    Attributes:
        finished, solved: trajectories that ended, and those of them that were solved.
    """

    once_per: Literal["search", "siblings"] = "siblings"

    def __init__(self, settings: ChainSearchKeys) -> None:
        self.settings = settings
        self.chain = StateChain(settings.gamma)
        self.finished = self.solved = 0

    def __len__(self) -> int:
        """States known."""
        return len(self.chain)

    def visits(self, key: str) -> float:
        """Weight of the steps sampled at a state."""
        return self.chain.steps(key)

    def score(self, keys: Sequence[str], depth: int) -> StateScore:
        """S = exp(-α·ln(t)·V(s)), float64 [states]; always open: no state is given up."""
        steps = np.array([self.chain.steps(key) for key in keys])
        return state_score(steps, steps * self.chain.values(keys), depth, alpha=self.settings.score_alpha, xi=np.inf)

    def progress(self, key: str, depth: int, outcomes: Outcomes) -> FloatArray:
        """γ·V(s') - V(s), float64 [samples], with 1 or 0 for γ·V(s') where a trajectory ended.

        A state without samples is as good as the one before it, and the first one as good as the average trajectory.
        """
        average = (self.solved + 0.5) / (self.finished + 1)
        here = float(self.chain.values([key], average)[0])
        after = self.settings.gamma * self.chain.values(outcomes.keys, here)
        return np.asarray(np.where(outcomes.ended, outcomes.solved, after) - here)

    def observe(self, key: str, outcomes: Outcomes) -> None:
        """Count the sampled steps, those that the search does not follow included."""
        self.chain.observe(key, outcomes)

    def finish(self, path: Sequence[str], success: bool, *, terminal: bool) -> None:
        """Count a finished trajectory; its steps are counted already."""
        self.finished += 1
        self.solved += success

    def end_iteration(self) -> None:
        """Let counts fade, with ``state_decay``."""
        self.chain.fade(self.settings.state_decay)

    def to_json(self) -> dict[str, Any]:
        """Plain data; `load_json` is its inverse."""
        return {"finished": self.finished, "solved": self.solved, "chain": self.chain.to_json()}

    def load_json(self, data: Mapping[str, Any]) -> None:
        """Replace everything by what `to_json` returned."""
        self.finished, self.solved = int(data["finished"]), int(data["solved"])
        self.chain.load_json(data["chain"])


RECIPE = Recipe(
    name="chain-search",
    summary="tree search over states whose values come from the Markov chain of all sampled steps; GRPO among "
    "sibling actions on the progress of these values",
    reference="ours: docs/algorithms/chain-search.md; the search is that of 3SPO, section 3.4 and algorithm 1",
    credit=credit,
    policy_loss=policy_loss,
    defaults={
        "gamma": 0.95,
        "score_alpha": 1.0,
        "novelty": "none",
        "success_weight": 0.0,
        "search_max_finished": 1,
        "search_warmup": 1,
        "step_norm": "mean",
        "aggregation": "seq-mean-token-mean",
        "minibatches": 1,
    },
    keys=ChainSearchKeys,
    source="search",
    states=ChainValues,
    grouped=True,
    stale_unit="step",
    preset="alfworld_chain_search_small.yaml",
)
