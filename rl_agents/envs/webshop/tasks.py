"""The shop of a catalogue, its goals, and which of them are train and which are test.

A task id is the kind of goal and its number in the published shuffle: ``human/00012``, ``synthetic/00007``. Number n of
the official files is the same request as in the environments of the WebShop, GiGPO and HGPO papers (its price limit,
which their code draws without a seed, is fixed here).

- Official files: goals 0 to 499 are test, all others train, as in StepPO (appendix B.1) and 3SPO (appendix C).
  WebShop's own baseline holds 500 to 1499 out for validation: ``train_after_eval`` is what is left. Where there are
  1,500 goals or fewer, the first fifth is test, the rest train.
- Generated catalogues ``generated`` and ``small``: split once by sha256; ``panel.json`` holds the ids and the hash of
  every request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rl_agents.envs.panels import check_split, shuffled_ids
from rl_agents.envs.webshop import WebShopOptions
from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.pages import Page, State, act, view
from rl_agents.envs.webshop.records import Goal
from rl_agents.envs.webshop.reward import Score
from rl_agents.envs.webshop.store import GOAL_KINDS, Store, open_store
from rl_agents.errors import InputError

TEST_END, EVAL_END = 500, 1500
SPLIT_SEED = "webshop-2025"
SPLITS = ("train", "train_after_eval", "test")
#: Tests among the goals of a generated catalogue.
TEST_SHARE = 0.2
_TASK_ID = re.compile(r"(human|synthetic)/(\d{5,8})")


def task_id(kind: str, number: int) -> str:
    return f"{kind}/{number:05d}"


def split_ids(store: Store, split: str, kind: str, generated: bool) -> list[str]:
    """Return the ids of a split.

    Args:
        kind: ``human`` or ``synthetic``.
        generated: whether the store's products are our own.

    Raises:
        InputError: unknown split or kind, or a store without goals of the kind.
    """
    check_split(split, dict.fromkeys(SPLITS, ()))
    count = store.goal_count(kind)
    if not count:
        other = next((name for name in GOAL_KINDS if store.goal_count(name)), "")
        hint = f"; env.goals={other} has some" if other else ""
        raise InputError(f"this catalogue has no {kind} goals{hint}")
    if generated:
        return list(_hashed_split(count, kind)[split])
    first, second = (TEST_END, EVAL_END) if count > EVAL_END else [max(count // 5, 1)] * 2
    ranges = {"test": range(first), "train": range(first, count), "train_after_eval": range(second, count)}
    return [task_id(kind, number) for number in ranges[split]]


def find_goal(store: Store, name: str) -> Goal:
    """Return the goal of a task id.

    Raises:
        InputError: it is not one, or its number is too high for the store.
    """
    match = _TASK_ID.fullmatch(name)
    if match is None:
        raise InputError(f"unknown webshop task '{name[:80]}': a task id reads human/00012")
    return _cached_goal(store, match[1], int(match[2]), name)


@lru_cache(maxsize=4096)
def _cached_goal(store: Store, kind: str, number: int, name: str) -> Goal:
    try:
        return store.goal(kind, number)
    except IndexError:
        count = store.goal_count(kind)
        raise InputError(f"unknown webshop task '{name}': this catalogue has {count} {kind} goals") from None


@lru_cache(maxsize=16)
def _hashed_split(count: int, kind: str) -> dict[str, tuple[str, ...]]:
    ids = shuffled_ids((task_id(kind, number) for number in range(count)), SPLIT_SEED)
    tests = max(round(count * TEST_SHARE), 1)
    train = tuple(sorted(ids[tests:]))
    return {"test": tuple(sorted(ids[:tests])), "train": train, "train_after_eval": train}


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
        """Return the tasks of a split; see `split_ids`."""
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
    return LocalShop(catalogue)


def task_ids(split: str, options: WebShopOptions) -> list[str]:
    if split == "train" and options.hold_out_eval:
        split = "train_after_eval"
    return local_shop(options.catalogue).task_ids(split, options.goals)
