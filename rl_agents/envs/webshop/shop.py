"""One interface to a shop in this process and to one behind HTTP: reset and step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol

from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.goals import find_goal, split_ids
from rl_agents.envs.webshop.pages import Page, Shown, State, act, view
from rl_agents.envs.webshop.reward import Score
from rl_agents.envs.webshop.store import Hit, Store, open_store


@dataclass(frozen=True, slots=True)
class ShopReply:
    """What a shop answers to reset and step.

    Attributes:
        instruction: the request; the same throughout the session.
        price_limit: its price limit, for styles that word the request anew.
        problem: why the action did nothing, one of the words of `rl_agents.envs.webshop.pages`; empty when it did.
        score: after a purchase, which ends the session.
    """

    instruction: str
    price_limit: float
    state: State
    page: Page
    problem: str = ""
    score: Score | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the answer as it travels: plain dicts and lists (`dataclasses.asdict` takes five times as long)."""
        page, product = self.page, self.page.product
        return {
            "instruction": self.instruction,
            "price_limit": self.price_limit,
            "state": self.state.to_json(),
            "page": {
                "kind": page.kind,
                "texts": page.texts,
                "actions": page.actions,
                "items": [{"asin": h.asin, "title": h.title, "price_tag": h.price_tag} for h in page.items],
                "product": product
                and {"title": product.title, "price_tag": product.price_tag, "options": product.options},
            },
            "problem": self.problem,
            "score": self.score and asdict(self.score),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ShopReply:
        """Read an answer that travelled.

        Raises:
            KeyError, TypeError, ValueError: it is not one.
        """
        page, score = data["page"], data["score"]
        product = page["product"]
        shown = None
        if product is not None:
            options = tuple((axis, tuple(values)) for axis, values in product["options"])
            shown = Shown(product["title"], product["price_tag"], options)
        return cls(
            instruction=data["instruction"],
            price_limit=float(data["price_limit"]),
            state=State.from_json(data["state"]),
            page=Page(
                page["kind"],
                tuple(page["texts"]),
                tuple(page["actions"]),
                items=tuple(Hit(**hit) for hit in page["items"]),
                product=shown,
            ),
            problem=data["problem"],
            score=None if score is None else Score(**score),
        )


class Shop(Protocol):
    """A shop holds no session: whoever plays keeps the state and sends it along."""

    def task_ids(self, split: str, kind: str) -> list[str]:
        """Return the tasks of a split; see `rl_agents.envs.webshop.goals`."""
        ...

    def reset(self, task_id: str) -> ShopReply:
        """Begin a task."""
        ...

    def step(self, task_id: str, state: State, command: str) -> ShopReply:
        """Apply ``search[...]`` or ``click[...]``."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class LocalShop:
    """A shop in this process, around a store that all its sessions share.

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
        """See `Shop.task_ids`."""
        return split_ids(self.store, split, kind, self.generated)

    def reset(self, task_id: str) -> ShopReply:
        """See `Shop.reset`.

        Raises:
            InputError: unknown task id.
        """
        return self._turn(task_id, State())

    def step(self, task_id: str, state: State, command: str) -> ShopReply:
        """See `Shop.step`.

        Raises:
            InputError: unknown task id.
            ValueError: a state that this store cannot have.
        """
        move = act(self.store, find_goal(self.store, task_id), state, command)
        return self._turn(task_id, move.state, move.problem, move.score)

    def close(self) -> None:
        """Keep the store open: other environments of this process use it."""

    def _turn(self, task_id: str, state: State, problem: str = "", score: Score | None = None) -> ShopReply:
        goal = find_goal(self.store, task_id)
        return ShopReply(goal.instruction, goal.price_upper, state, view(self.store, state), problem, score)


@lru_cache(maxsize=8)
def local_shop(catalogue: str) -> LocalShop:
    """Return the process's shop of a catalogue."""
    return LocalShop(catalogue)
