"""What is compared, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.exact_worlds.learn import Curve, learn
from benchmarks.exact_worlds.methods import Maker, chain_of, gigpo_of, grpo_of, hgpo_of, steppo_of, vine_of
from benchmarks.exact_worlds.searches import SearchMethod, learn_search
from benchmarks.exact_worlds.trees import branch_of
from benchmarks.exact_worlds.world import World

#: Length of an optimizer step: one for all that learn from an iteration at once, and one for updates after each tick.
LR, TICK_LR = 1.0, 0.3


@dataclass(frozen=True)
class Arm:
    """A method and how it is run.

    Attributes:
        method: from whole episodes, or a search.
        lr: length of a step.
        trust: see `learn`.
    """

    method: Maker | SearchMethod
    lr: float = LR
    trust: float = 0.0

    def curve(self, world: World, *, seeds: int, iterations: int, lr: float | None = None) -> Curve:
        """Learning curves."""
        rate = self.lr if lr is None else lr
        if isinstance(self.method, SearchMethod):
            return learn_search(world, self.method, lr=rate, seeds=seeds, iterations=iterations)
        return learn(world, self.method, lr=rate, seeds=seeds, iterations=iterations, trust=self.trust)


def _search(**keys: Any) -> Arm:
    return Arm(SearchMethod(keys), TICK_LR)


BASELINES = {
    "grpo": Arm(grpo_of()),
    "gigpo": Arm(gigpo_of()),
    "hgpo": Arm(hgpo_of()),
    "steppo": Arm(steppo_of()),
    "vineppo": Arm(vine_of()),
}
#: The chain of states as the critic of ordinary episodes (g).
CHAIN = {
    "chain λ=0": Arm(chain_of(0.0)),
    "chain λ=0.5": Arm(chain_of(0.5)),
    "chain λ=0.9": Arm(chain_of(0.9)),
    "chain λ=0.95": Arm(chain_of(0.95)),
    "chain λ=1": Arm(chain_of(1.0)),
    "chain λ=0.95, solved again": Arm(chain_of(0.95, imitate=0.3)),
}
#: Solved episodes again, bounded as in the product, by what their ratio does.
AGAIN = {
    "again, bounded": Arm(chain_of(0.95, imitate=0.3, bounded=True)),
    "again, bounded, clipped": Arm(chain_of(0.95, imitate=0.3, bounded=True, ratio="clip")),
    "again, bounded, truncated": Arm(chain_of(0.95, imitate=0.3, bounded=True, ratio="truncate")),
}
#: As in the product, by how far an advantage looks before it trusts a state's value.
LAMBDA = {
    **{
        f"again, λ={lam:g}": Arm(chain_of(lam, imitate=0.3, bounded=True, ratio="clip")) for lam in (0.5, 0.7, 0.8, 0.9)
    },
    **{
        f"again, λ={lam:g}, corrected": Arm(chain_of(lam, imitate=0.3, bounded=True, ratio="clip", corrected=2.0))
        for lam in (0.5, 0.7)
    },
}
#: The same with one thing changed.
PARTS = {
    "groups of 8": Arm(chain_of(0.9, size=8)),
    "λ=1, groups of 8": Arm(chain_of(1.0, size=8)),
    "λ=1, judged before counted": Arm(chain_of(1.0, first="judge")),
    "groups of 8, no memory": Arm(chain_of(0.9, size=8, keep=0.0)),
    "no memory": Arm(chain_of(0.9, keep=0.0)),
    "γ=1": Arm(chain_of(0.9, gamma=1.0)),
    "judged before counted": Arm(chain_of(0.9, first="judge")),
    "steppo, no groups": Arm(steppo_of(size=1)),
    "prior 0.1": Arm(chain_of(0.9, prior=0.1)),
    "solved again": Arm(chain_of(0.9, imitate=0.3)),
    "solved again, weight 1": Arm(chain_of(0.9, imitate=1.0)),
    "long steps": Arm(chain_of(0.9), lr=4.0),
    "long steps, trust region": Arm(chain_of(0.9), lr=4.0, trust=0.01),
    "branch anywhere": Arm(branch_of("uniform")),
    "branch by spread": Arm(branch_of("spread")),
    "branch, not weighed": Arm(branch_of("spread", weigh=False)),
}
#: 3spo as it is, as published, and with one part of either changed.
SEARCHES = {
    "3spo": _search(),
    "3spo, w/o paths": _search(path_weight=0.0),
    "3spo, counts": _search(score_rate="counts"),
    "3spo, w/o novelty": _search(novelty="none"),
    "3spo, novelty always": _search(novelty_until="always"),
    "3spo, w/o difference": _search(score_difference="none"),
    "3spo, difference of scores": _search(score_difference="score"),
    "3spo, 4 paths": _search(search_max_finished=4),
    "3spo, deviation of siblings": _search(sibling_norm="group"),
    "3spo, uniform n": _search(search_rollouts="uniform"),
    "3spo, w/o backtracking": _search(search_backtrack=False),
    "3spo, G_max 8": _search(group_size=8),
    "published": _search(reading="published"),
    "published, alpha 1": _search(reading="published", score_alpha=1.0),
    "published, no gate": _search(reading="published", score_gate="off"),
    "published, running deviation": _search(reading="published", sibling_norm="running"),
}
ARMS: dict[str, Arm] = {**BASELINES, **CHAIN, **AGAIN, **LAMBDA, **PARTS, **SEARCHES}
#: Each kind is run by itself: searches cost a hundred times as much CPU.
SETS = {
    "main": (*BASELINES, *CHAIN),
    "again": ("grpo", "chain λ=0.95", "chain λ=0.95, solved again", *AGAIN),
    "lambda": ("grpo", *LAMBDA, "again, bounded, clipped"),
    "parts": ("grpo", "chain λ=0.9", *PARTS),
    "searches": tuple(SEARCHES),
}


@dataclass
class Chosen:
    """Names of arms.

    Raises:
        KeyError: there is none of this name.
    """

    names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, words: list[str]) -> Chosen:
        """Names and names of sets."""
        return cls([name for word in words for name in SETS.get(word, (word,))])
