"""Builds a world from what an action does in a state, and its first policy from how often that succeeds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.exact_worlds.world import World, policy, success
from rl_agents.advantages.statistics import FloatArray, IntArray

WON, LOST = "won", "lost"
#: Where an action may lead: (chance, state), or one state for sure.
Outcome = Sequence[tuple[float, Hashable]]
#: Discount of the best policy that a first policy is drawn towards: it takes the short way.
HASTE = 0.97
#: Deviation of a first policy's own habits.
HABITS = 0.5


def build(
    name: str,
    starts: Sequence[Hashable],
    actions: int,
    step: Callable[[tuple[int, ...], int], Hashable | Outcome],
    *,
    horizon: int,
    start: float,
    name_of: Callable[[tuple[int, ...]], Hashable] | None = None,
    parts_of: Callable[[tuple[int, ...]], Sequence[Hashable]] | None = None,
    task_of: Callable[[tuple[int, ...]], int] | None = None,
) -> World:
    """Walk from the starts to every state, and set the first policy's success.

    Args:
        step: (state, action) -> where that leads; `WON` and `LOST` are the ends.
        start: success of the first policy.
        name_of: what estimators see of a state; None: all.
        parts_of: features that are 1 in a state; None: the state itself.
        task_of: the task of a state; None: there is one.
    """
    order, table = _explore(starts, actions, step)
    number = {state: index for index, state in enumerate(order)}
    ends = {WON: len(order), LOST: len(order) + 1}
    chances = np.zeros((len(order), actions, len(order) + 2))
    for (state, action), found in table.items():
        for chance, after in found:
            chances[number[state], action, ends.get(after, number.get(after, -1))] += chance  # type: ignore[call-overload]
    first = np.bincount([number[state] for state in starts], minlength=len(order)) / len(starts)
    world = World(
        name, chances, first, horizon,
        names=_numbered([name_of(s) if name_of else s for s in order]),
        features=_features([parts_of(s) if parts_of else [s] for s in order]),
        weights=np.zeros((0, 0)),
        task=np.array([task_of(s) if task_of else 0 for s in order]),
    )  # fmt: skip
    return with_start(world, start)


def _explore(
    starts: Sequence[Hashable], actions: int, step: Callable[[tuple[int, ...], int], Hashable | Outcome]
) -> tuple[list[tuple[int, ...]], dict[tuple[Hashable, int], Outcome]]:
    order: list[tuple[int, ...]] = list(dict.fromkeys(starts))  # type: ignore[arg-type]
    known, table = set(order), {}
    for state in order:  # grows
        for action in range(actions):
            led = step(state, action)
            table[(state, action)] = led if isinstance(led, list) else [(1.0, led)]
            for _, after in table[(state, action)]:
                if after not in (WON, LOST) and after not in known:
                    known.add(after)
                    order.append(after)
    return order, table  # type: ignore[return-value]


def _numbered(items: Sequence[Hashable]) -> IntArray:
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(item, len(known)) for item in items])


def _features(parts: Sequence[Sequence[Hashable]]) -> FloatArray:
    known: dict[Hashable, int] = {}
    places = [[known.setdefault(part, len(known)) for part in own] for own in parts]
    found = np.zeros((len(parts), len(known)))
    for state, own in enumerate(places):
        found[state, own] = 1.0
    return found


def best_actions(world: World) -> FloatArray:
    """1 where an action is the best one by discounted success, [states, actions]; 0 where all are alike."""
    worth = np.zeros(world.states + 2)
    worth[world.won] = 1.0
    q = np.zeros((world.states, world.actions))
    for _ in range(4 * world.horizon):
        q = HASTE * world.chances @ worth
        worth[: world.states] = q.max(axis=1)
    best = q >= q.max(axis=1, keepdims=True) - 1e-9
    return np.where(best.all(axis=1, keepdims=True), 0.0, best)


def with_start(world: World, start: float, seed: int = 0) -> World:
    """The same world with a first policy of that success: habits by chance, and as much insight as that takes.

    Raises:
        ValueError: no amount of insight gives that success.
    """
    generator = np.random.default_rng(seed)
    inverse = np.linalg.pinv(world.features)
    habits = inverse @ generator.normal(0.0, HABITS, (world.states, world.actions))
    insight = inverse @ best_actions(world)
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        reached = success(world, policy(world, (habits + middle * insight)[None]))[0]
        low, high = (middle, high) if reached < start else (low, middle)
    if abs(reached - start) > 1e-3:
        raise ValueError(f"{world.name}: no first policy of success {start:g}, the nearest has {reached:.3f}")
    return replace(world, weights=habits + middle * insight)
