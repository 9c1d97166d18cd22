"""What is compared, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.exact_worlds.learn import Curve, learn
from benchmarks.exact_worlds.methods import Maker, chain_of, gigpo_of, grpo_of, hgpo_of, steppo_of, vine_of
from benchmarks.exact_worlds.readings import BySamples, BySolved, KnownWay, UntilSolved
from benchmarks.exact_worlds.searches import SearchMethod, learn_search
from benchmarks.exact_worlds.trees import branch_of
from benchmarks.exact_worlds.world import World
from rl_agents.search.states import States

#: Length of an optimiser step: one for all that learn from an iteration at once, and one for updates after each tick.
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


def _search(algo: str = "3spo", update: str = "tick", reach: bool = False, **keys: Any) -> Arm:
    """A search; 3SPO with the gate in S, as in equation 1."""
    own = {"score_gate": "score", **keys} if algo == "3spo" else keys
    return Arm(SearchMethod(algo, own, update, reach), TICK_LR if update == "tick" else LR)


def _open(states: Callable[[Any], States] | None = None, **keys: Any) -> Arm:
    """3SPO at α = 1 with the gate in n alone."""
    return Arm(SearchMethod(keys={"score_alpha": 1.0, "score_gate": "count", **keys}, states=states), TICK_LR)


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
#: 3SPO by the readings of its equations, and the search with values of the policy.
SEARCHES = {
    "3spo": _search(),
    "3spo α=1": _search(score_alpha=1.0),
    "3spo α=1, clock": _search(score_alpha=1.0, score_clock="global"),
    "3spo α=1, unseen": _search(score_alpha=1.0, novelty="unseen"),
    "3spo α=1, first on path": _search(score_alpha=1.0, novelty="first_in_trajectory"),
    "3spo α=1, no novelty": _search(score_alpha=1.0, novelty="none"),
    "3spo α=1, ends ignored": _search(score_alpha=1.0, state_terminal="ignored"),
    "3spo α=1, no gate": _search(score_alpha=1.0, score_xi=1e9),
    "3spo α=1, every visit": _search(score_alpha=1.0, state_count="visit"),
    "3spo α=1, by task": _search(score_alpha=1.0, state_scope="task"),
    "3spo α=1, mean": _search(score_alpha=1.0, step_norm="mean"),
    "3spo α=1, uniform n": _search(score_alpha=1.0, search_rollouts="uniform"),
    "3spo α=1, one path": _search(score_alpha=1.0, search_max_finished=1),
    "3spo α=1, by reach": _search(score_alpha=1.0, reach=True),
    "3spo α=1, one update": _search(score_alpha=1.0, update="iteration"),
    "chain-search": _search("chain-search"),
    "chain-search, by reach": _search("chain-search", reach=True),
    "chain-search, one update": _search("chain-search", update="iteration"),
}
#: The gate closes states to sampling no more, and so S(s') = 0 is left to what is mastered.
OPEN = {
    "3spo, no gate": _search(score_xi=1e9),
    "no gate, unseen": _search(score_alpha=1.0, score_xi=1e9, novelty="unseen"),
    "no gate, no novelty": _search(score_alpha=1.0, score_xi=1e9, novelty="none"),
    "no gate, mean": _search(score_alpha=1.0, score_xi=1e9, step_norm="mean"),
    "no gate, one path": _search(score_alpha=1.0, score_xi=1e9, search_max_finished=1),
    "no gate, uniform n": _search(score_alpha=1.0, score_xi=1e9, search_rollouts="uniform"),
    "no gate, by reach": _search(score_alpha=1.0, score_xi=1e9, reach=True),
    "no gate, one update": _search("3spo", "iteration", score_alpha=1.0, score_xi=1e9),
}
#: The gate in n(s) alone; then what novelty and p are counted from.
GATE = {
    "gate at n, α=50": _open(score_alpha=50.0),
    "gate at n": _open(),
    "gate at n, no novelty": _open(novelty="none"),
    "gate at n, novelty where unsolved": _open(UntilSolved),
    "gate at n, novelty by solved": _open(BySolved),
    "gate at n, novelty by samples": _open(BySamples),
    "gate at n, until success": _open(novelty_until="solved"),
    "chain's p": _open(score_rate="chain"),
    "chain's p, no novelty": _open(score_rate="chain", novelty="none"),
    "chain's p, until success": _open(score_rate="chain", novelty_until="solved"),
    "chain's p, until a way is known": _open(KnownWay, score_rate="chain"),
    "chain's p, until success, α=50": _open(score_rate="chain", novelty_until="solved", score_alpha=50.0),
    "chain's p, until success, gate in S": _open(score_rate="chain", novelty_until="solved", score_gate="score"),
    "chain's p, until success, uniform n": _open(score_rate="chain", novelty_until="solved", search_rollouts="uniform"),
    "chain's p, until success, mean": _open(score_rate="chain", novelty_until="solved", step_norm="mean"),
}
ARMS: dict[str, Arm] = {**BASELINES, **CHAIN, **AGAIN, **LAMBDA, **PARTS, **SEARCHES, **OPEN, **GATE}
#: Each kind is run by itself: searches cost a hundred times as much CPU.
SETS = {
    "main": (*BASELINES, *CHAIN),
    "again": ("grpo", "chain λ=0.95", "chain λ=0.95, solved again", *AGAIN),
    "lambda": ("grpo", *LAMBDA, "again, bounded, clipped"),
    "parts": ("grpo", "chain λ=0.9", *PARTS),
    "searches": tuple(SEARCHES),
    "open": tuple(OPEN),
    "gate": tuple(GATE),
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
