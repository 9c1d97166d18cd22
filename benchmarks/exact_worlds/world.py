"""Finite worlds with known transition probabilities, softmax policies, their exact values by dynamic programming, and
the construction of a world from a step function.

Arrays over runs have a leading axis [runs], so one call evaluates the policies of all seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from rl_agents.advantages import FloatArray, IntArray


@dataclass(frozen=True)
class World:
    """A world whose episodes end solved, unsolved, or unsolved after ``horizon`` steps; success is the only reward.

    Attributes:
        chances: [states, actions, states + 2], P(s'|s, a); the last two are the ends, solved and unsolved.
        starts: [states], P(s_0): one state per task.
        names: [states], state keys of the estimators; equal names of different states are aliases.
        features: [states, parts]; logits are ``features @ weights``. The identity gives a table.
        weights: [parts, actions], of the initial policy.
    """

    name: str
    chances: FloatArray
    starts: FloatArray
    horizon: int
    names: IntArray
    features: FloatArray
    weights: FloatArray

    @property
    def states(self) -> int:
        return int(self.chances.shape[0])

    @property
    def actions(self) -> int:
        return int(self.chances.shape[1])

    @property
    def won(self) -> int:
        """Index of the solved end; the unsolved one is the next."""
        return self.states


class Values(NamedTuple):
    """V [horizon + 1, runs, states] and A = Q - V [horizon, runs, states, actions]: future success, by step."""

    values: FloatArray
    advantages: FloatArray


def policy(world: World, weights: FloatArray) -> FloatArray:
    """π(a|s), [runs, states, actions], of ``weights`` [runs, parts, actions]."""
    logits = np.matmul(world.features, weights)
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    shares: FloatArray = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def values(world: World, chosen: FloatArray) -> Values:
    """V_h = Σ_a π·Q_h;  Q_h(s, a) = Σ_s' P(s'|s, a)·V_{h+1}(s'), with 1 at the solved end and 0 after the horizon."""
    runs = chosen.shape[0]
    table = world.chances.reshape(-1, world.states + 2)
    found = np.zeros((world.horizon + 1, runs, world.states))
    gains = np.zeros((world.horizon, runs, world.states, world.actions))
    for step in reversed(range(world.horizon)):
        after = np.concatenate([found[step + 1], np.ones((runs, 1)), np.zeros((runs, 1))], axis=1)
        q = (after @ table.T).reshape(runs, world.states, world.actions)
        found[step] = (chosen * q).sum(axis=-1)
        gains[step] = q - found[step][..., None]
    return Values(found, gains)


def success(world: World, chosen: FloatArray) -> FloatArray:
    """J = Σ_s P(s_0 = s)·V_0(s), [runs]: the exact success of a run's policy."""
    table = world.chances.reshape(-1, world.states + 2)
    runs = chosen.shape[0]
    now = np.zeros((runs, world.states))
    for _ in range(world.horizon):
        after = np.concatenate([now, np.ones((runs, 1)), np.zeros((runs, 1))], axis=1)
        now = (chosen * (after @ table.T).reshape(chosen.shape)).sum(axis=-1)
    return np.asarray(now @ world.starts)


def gradient(
    world: World, chosen: FloatArray, run: IntArray, state: IntArray, action: IntArray, advantage: FloatArray
) -> FloatArray:
    """Σ_i A_i·∇log π(a_i|s_i) of sampled steps, [runs, parts, actions]; the arguments are [steps], A_i weighted."""
    runs, states, actions = chosen.shape
    place = run * states + state
    taken = np.bincount(place * actions + action, advantage, runs * states * actions).reshape(chosen.shape)
    total = np.bincount(place, advantage, runs * states).reshape(runs, states)
    return np.asarray(np.matmul(world.features.T, taken - total[..., None] * chosen))


# --- building

WON, LOST = "won", "lost"
#: Outcome of an action: (probability, state) pairs.
Outcome = Sequence[tuple[float, Hashable]]
#: Discount of the best policy, which therefore takes the shortest path.
HASTE = 0.97
#: Standard deviation of the initial policy's random logits.
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
) -> World:
    """Explore all states from the starts, and set the success of the initial policy.

    Args:
        step: (state, action) -> next state or `Outcome`; `WON` and `LOST` are the ends.
        start: success of the initial policy.
        name_of: state key; None: the state.
        parts_of: features that are 1 in a state; None: the state.
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
    """Return 1 for the best actions by discounted success, [states, actions]; 0 if all are equally good."""
    worth = np.zeros(world.states + 2)
    worth[world.won] = 1.0
    q = np.zeros((world.states, world.actions))
    for _ in range(4 * world.horizon):
        q = HASTE * world.chances @ worth
        worth[: world.states] = q.max(axis=1)
    best = q >= q.max(axis=1, keepdims=True) - 1e-9
    return np.where(best.all(axis=1, keepdims=True), 0.0, best)


def with_start(world: World, start: float, seed: int = 0) -> World:
    """Return the world with an initial policy of success ``start``: random logits plus a multiple of the best actions.

    Raises:
        ValueError: no multiple gives that success.
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
        raise ValueError(f"{world.name}: no initial policy with success {start:g}, the closest has {reached:.3f}")
    return replace(world, weights=habits + middle * insight)
