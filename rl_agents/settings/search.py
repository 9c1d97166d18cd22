"""Keys of states: what is one, the chain of them (chain-search, chain-gae), and searches (3spo, chain-search)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.settings.learning import DiscountKeys
from rl_agents.settings.options import key


@dataclass
class StateKeys:
    """What is one state (3spo, chain-search, chain-gae)."""

    state_name: Literal["anchor", "observation"] = key("anchor", "what names a state: info['anchor'], or what is shown")
    state_scope: Literal["global", "task"] = key("global", "equal states of different tasks are one (paper), or not")


@dataclass
class ChainKeys(DiscountKeys):
    """The chain of states (chain-search, chain-gae): how long sampled steps are remembered."""

    state_decay: float = key(
        1.0, "factor on all counts per iteration, below 1 to forget old policies", above=0, at_most=1
    )


@dataclass
class SearchKeys(StateKeys):
    """Searches (3spo, chain-search): where they branch, and what a step earns."""

    branching: Literal["auto", "snapshot", "replay"] = key(
        "auto", "how a state is reached again: the environment's own copy of it, or its actions replayed"
    )
    search_steps: int = key(512, "sampled actions of one iteration, over all tasks", at_least=1)
    search_warmup: int = key(
        0, "first iterations in which nothing but what is known about states is learned, from one action per state",
        at_least=0,
    )  # fmt: skip
    search_max_finished: int = key(32, "finished trajectories after which a task is left", at_least=1)
    search_max_steps: int = key(0, "sampled actions after which a task is left; 0 is no limit", at_least=0)
    guard_episodes: int = key(
        16, "episodes of the plain policy that an iteration plays for the guard alone; 0: none, and no guard",
        at_least=0, needs="guard!=off",
    )  # fmt: skip
    search_rollouts: Literal["adaptive", "uniform"] = key("adaptive", "n(s) by score, or group_size everywhere")
    search_backtrack: bool = key(True, "siblings that are not followed wait on a frontier; off: they are forgotten")
    score_alpha: float = key(
        50.0, "alpha of the annealing alpha*ln(t); at 50 n is 0, 1 or group_size, at 1 all between occur", at_least=0
    )
    score_difference: Literal["progress", "none"] = key(
        "progress", "what a step earns by where it leads: the difference of scores or values (eq. 2), or nothing"
    )
    novelty: Literal["changed", "unseen", "first_in_trajectory", "zero", "none"] = key(
        "changed",
        "what is novel: another state than before; one never counted; one not on the path; nothing (`zero` keeps "
        "omega: the score difference weighs 1/2 - omega; `none` has omega = 0: it weighs 1/2)",
    )
    novelty_decay: float = key(
        0.1, "gamma_w: omega(N) = exp(-gamma_w*N)/2 weighs novelty", at_least=0,
        needs=("novelty!=none", "novelty_fixed=0"),
    )  # fmt: skip
    novelty_fixed: float = key(
        0.0, "omega as a constant (ablation: 0.25); 0 is omega(N)", at_least=0, at_most=0.5, needs="novelty!=none"
    )
    novelty_until: Literal["always", "solved"] = key(
        "always", "novelty pays in the whole run, or until its first success (as novelty=none from then on)",
        needs="novelty!=none",
    )  # fmt: skip
    success_weight: float = key(0.5, "weight of terminal success in a step's reward", at_least=0)
