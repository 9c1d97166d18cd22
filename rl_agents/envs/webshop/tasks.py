"""The shop of a catalog, and its train and test goals.

A task id is the kind of goal and its number in the published shuffle, ``human/00012``: the same request as in the
environments of the WebShop, GiGPO and HGPO papers, except its price limit, which their code draws without a seed. Goals
0 to 499 of official files are test (StepPO, appendix B.1; 3SPO, appendix C); of 1,500 goals or fewer, the first fifth.
Generated catalogs are split once by sha256.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rl_agents.envs.task_sets import TaskSets, held_out, without_tests
from rl_agents.envs.webshop import WebShopOptions
from rl_agents.envs.webshop.catalogue import find_catalogue
from rl_agents.envs.webshop.pages import Move, Page, view
from rl_agents.envs.webshop.records import Goal
from rl_agents.envs.webshop.store import GOAL_KINDS, Store
from rl_agents.errors import InputError

#: Number of test goals of official files with more than `MANY` goals.
TEST_END, MANY = 500, 1500
SPLIT_SEED = "webshop-2025"
#: Share of test goals of a generated catalog.
TEST_SHARE = 0.2
_TASK_ID = re.compile(r"(human|synthetic)/(\d{5,8})", re.ASCII)


def task_id(kind: str, number: int) -> str:
    return f"{kind}/{number:05d}"


def split_ids(store: Store, split: str, kind: str, generated: bool) -> list[str]:
    count = store.goal_count(kind)
    if not count:
        other = next((name for name in GOAL_KINDS if store.goal_count(name)), "")
        hint = f"; env.goals={other} has some" if other else ""
        raise InputError(f"this catalog has no {kind} goals{hint}")
    if generated:
        return list(_hashed_split(store, count, kind)[split])
    first = TEST_END if count > MANY else max(count // 5, 1)
    return [task_id(kind, number) for number in (range(first) if split == "test" else range(first, count))]


def find_goal(store: Store, name: str) -> Goal:
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
        raise InputError(f"unknown webshop task '{name}': this catalog has {count} {kind} goals") from None


@lru_cache(maxsize=16)
def _hashed_split(store: Store, count: int, kind: str) -> TaskSets:
    def asked(name: str) -> tuple[str, float]:
        goal = find_goal(store, name)
        return goal.instruction, goal.price_upper

    splits = held_out([task_id(kind, n) for n in range(count)], SPLIT_SEED, max(round(count * TEST_SHARE), 1))
    return {**splits, "train": without_tests(splits["train"], splits["test"], asked)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopReply(Move):
    """A move in the shop, with the goal and the page after it."""

    goal: Goal
    page: Page


def reply(store: Store, goal: Goal, move: Move) -> ShopReply:
    return ShopReply(move.state, move.problem, move.score, goal=goal, page=view(store, move.state))


@lru_cache(maxsize=8)
def local_store(catalogue: str) -> Store:
    return Store(find_catalogue(catalogue).ensure_store())


def task_ids(split: str, options: WebShopOptions) -> list[str]:
    generated = find_catalogue(options.catalogue).generated
    return split_ids(local_store(options.catalogue), split, options.goals, generated)
