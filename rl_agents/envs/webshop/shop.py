"""A shop around a store: reset and step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.goals import find_goal, split_ids
from rl_agents.envs.webshop.pages import Page, State, act, view
from rl_agents.envs.webshop.reward import Score
from rl_agents.envs.webshop.store import Store, open_store


@dataclass(frozen=True, slots=True)
class ShopReply:
    """What a shop answers to reset and step.

    Attributes:
        instruction: the request; the same throughout the session.
        price_limit: its price limit, for styles that word the request again.
        problem: why the action did nothing, one of the words of `rl_agents.envs.webshop.pages`; empty when it did.
        score: after a purchase, which ends the session.
    """

    instruction: str
    price_limit: float
    state: State
    page: Page
    problem: str = ""
    score: Score | None = None


class LocalShop:
    """A shop around a store that all its sessions share; whoever plays keeps the state.

    Args:
        catalogue: see `rl_agents.envs.webshop.catalogue`.

    Raises:
        InputError: it cannot be found or read.
    """

    def __init__(self, catalogue: str) -> None:
        source = find_catalogue(catalogue)
        self.catalogue = source.name
        self.generated = source.generated
        self.store: Store = open_store(source.ensure_store())

    def task_ids(self, split: str, kind: str) -> list[str]:
        """Return the tasks of a split; see `rl_agents.envs.webshop.goals`."""
        return split_ids(self.store, split, kind, self.generated)

    def reset(self, task_id: str) -> ShopReply:
        """Begin a task.

        Raises:
            InputError: unknown task id.
        """
        return self._turn(task_id, State())

    def step(self, task_id: str, state: State, command: str) -> ShopReply:
        """Apply ``search[...]`` or ``click[...]``.

        Raises:
            InputError: unknown task id.
            ValueError: a state that this store cannot have.
        """
        move = act(self.store, find_goal(self.store, task_id), state, command)
        return self._turn(task_id, move.state, move.problem, move.score)

    def _turn(self, task_id: str, state: State, problem: str = "", score: Score | None = None) -> ShopReply:
        goal = find_goal(self.store, task_id)
        return ShopReply(goal.instruction, goal.price_upper, state, view(self.store, state), problem, score)


@lru_cache(maxsize=8)
def local_shop(catalogue: str) -> LocalShop:
    """Return the process's shop of a catalogue."""
    return LocalShop(catalogue)
