"""Keys of states (what counts as one, the chain of them) and of tree search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rl_agents.config.learning import DiscountKeys
from rl_agents.config.options import key


@dataclass
class StateKeys:
    """What is one state (3spo, chain-gae)."""

    state_key: Literal["anchor", "observation"] = key("anchor", "what names a state: info['anchor'], or what is shown")
    state_scope: Literal["global", "task"] = key("global", "equal states of different tasks are one (paper), or not")


@dataclass
class ChainKeys(DiscountKeys):
    """How long what is known of states is remembered (3spo, chain-gae)."""

    state_decay: float = key(
        1.0, "factor on all counts per iteration, below 1 to forget old policies", above=0, at_most=1
    )


@dataclass
class SearchKeys(StateKeys):
    """Tree search (3spo): its budget, where it goes next and when it leaves a task."""

    branching: Literal["auto", "snapshot", "replay"] = key(
        "auto", "how a state is reached again: the environment's own copy of it, or its actions replayed"
    )
    search_steps: int = key(2200, "sampled actions of one iteration, over all tasks", at_least=1)
    search_max_finished: int = key(1, "paths that are followed to their end before a task is left", at_least=1)
    search_backtrack: bool = key(True, "siblings that are not followed wait on a frontier; off: they are forgotten")
    collapse_monitor_episodes: int = key(
        16, "episodes of the plain policy that an iteration plays for the guard alone; 0: none, and no guard",
        at_least=0, needs="collapse_monitor!=off",
    )  # fmt: skip
