"""The worlds: states, horizon and success of the initial policy."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from benchmarks.exact_worlds.world import LOST, WON, Outcome, World, build


def chain() -> World:
    """Six locks of ten digits: of three actions, one moves forward, one back, and one does nothing."""

    def step(state: tuple[int, ...], action: int) -> Hashable:
        lock, place = state
        kind = (action - (7 + lock) * place - lock * lock) % 3
        if kind == 0:
            return WON if place == 9 else (lock, place + 1)
        return (lock, max(place - 1, 0)) if kind == 1 else state

    return build("chain", [(lock, 0) for lock in range(6)], 3, step, horizon=30, start=0.08)


#: Places of key and door, by task.
CORRIDORS = [(key, door) for key in range(7) for door in range(7) if abs(key - door) > 3]


def _corridor(state: tuple[int, ...], action: int) -> tuple[int, ...] | str:
    """Seven places with a key and a door. Actions: left, right, take, open."""
    task, place, key = state
    if action < 2:
        return (task, int(np.clip(place + 2 * action - 1, 0, 6)), key)
    if action == 2:
        return (task, place, 1) if place == CORRIDORS[task][0] else state
    return WON if place == CORRIDORS[task][1] and key else state


def _corridor_parts(state: tuple[int, ...]) -> list[Hashable]:
    """The policy sees its place and the direction of the next goal."""
    task, place, key = state[:3]
    return [("at", place, key), ("wanted", int(np.sign(CORRIDORS[task][key] - place)), key), ("task", task, key)]


def _corridor_world(name: str, name_of: Callable[[tuple[int, ...]], Hashable] | None = None) -> World:
    starts = [(task, 3, 0) for task in range(len(CORRIDORS))]
    return build(
        name, starts, 4, _corridor, horizon=24, start=0.06,
        name_of=name_of, parts_of=_corridor_parts,
    )  # fmt: skip


def key_door() -> World:
    """Twelve corridors with a key and a door."""
    return _corridor_world("key-door")


def aliased() -> World:
    """The same corridors; the policy knows whether it has the key, but state keys do not contain it."""
    return _corridor_world("aliased", lambda s: s[:2])


def noisy() -> World:
    """Half of these corridors; every state has one of four random names, so few states are visited twice."""

    def step(state: tuple[int, ...], action: int) -> Hashable | Outcome:
        after = _corridor(state[:3], action)
        return after if after == WON else [(1 / 4, (*after, nonce)) for nonce in range(4)]

    starts = [(task, 3, 0, nonce) for task in range(0, len(CORRIDORS), 2) for nonce in range(4)]
    return build(
        "noisy", starts, 4, step, horizon=24, start=0.06, parts_of=_corridor_parts
    )  # fmt: skip


def deduction() -> World:
    """Sixteen hypotheses: four questions halve them, a fifth is useless, and an answer ends the episode."""

    def step(state: tuple[int, ...], action: int) -> Hashable | Outcome:
        if action == 5:
            right = 0.5 ** sum(bit == 2 for bit in state)
            return [(right, WON), (1 - right, LOST)]
        if action == 4 or state[action] != 2:
            return state
        return [(0.5, (*state[:action], bit, *state[action + 1 :])) for bit in (0, 1)]

    return build("deduction", [(2, 2, 2, 2)], 6, step, horizon=7, start=0.35)


def distractors() -> World:
    """Eight places in a row; in each, up to four new things can be inspected, which never helps."""

    def step(state: tuple[int, ...], action: int) -> Hashable:
        place, seen = state
        if action == 2:
            return (place, min(seen + 1, 4))
        if seen:
            return (place, 0) if action == 1 else state
        if action == 0:
            return WON if place == 7 else (place + 1, 0)
        return (max(place - 1, 0), 0)

    return build("distractors", [(0, 0)], 3, step, horizon=30, start=0.06)


def slippery() -> World:
    """Four paths of eight places; the right action moves forward with probability 0.6, and back with 0.1."""

    def step(state: tuple[int, ...], action: int) -> Hashable | Outcome:
        way, place = state
        back, on = (way, max(place - 1, 0)), WON if place == 7 else (way, place + 1)
        kind = (action - (5 + way) * place - way) % 3
        if kind == 0:
            return [(0.6, on), (0.3, state), (0.1, back)]
        return [(0.2, on), (0.4, state), (0.4, back)] if kind == 1 else back

    return build("slippery", [(way, 0) for way in range(4)], 3, step, horizon=30, start=0.1)


#: Rooms of switch and exit, by task.
RINGS = [(3, 9), (5, 2), (8, 4), (10, 7), (2, 11), (6, 1)]


def loops() -> World:
    """Twelve rooms in a ring; a switch opens the exit in another room. Actions: forward, back, across, use."""

    def step(state: tuple[int, ...], action: int) -> Hashable:
        task, room, opened = state
        if action < 3:
            return (task, (room + (1, -1, 6)[action]) % 12, opened)
        if room != RINGS[task][opened]:
            return state
        return WON if opened else (task, room, 1)

    def parts(state: tuple[int, ...]) -> list[Hashable]:
        task, room, opened = state
        return [("at", room, opened), ("wanted", (RINGS[task][opened] - room) % 12, opened), ("task", task, opened)]

    starts = [(task, 0, 0) for task in range(len(RINGS))]
    return build("loops", starts, 4, step, horizon=30, start=0.05, parts_of=parts)


TRAPS = {(1, 1), (1, 3), (2, 3), (3, 0), (3, 1), (4, 3)}


def traps() -> World:
    """Five by five fields from corner to corner, with six fields that end the episode."""

    def step(state: tuple[int, ...], action: int) -> Hashable:
        moves = ((0, 1), (1, 0), (0, -1), (-1, 0))[action]
        field = tuple(int(np.clip(at + by, 0, 4)) for at, by in zip(state, moves, strict=True))
        return LOST if field in TRAPS else WON if field == (4, 4) else field

    return build("traps", [(0, 0)], 4, step, horizon=20, start=0.1)


QUESTS = [(4, 1, 5, 0), (0, 5, 3, 1), (5, 2, 4, 0), (1, 4, 0, 3)]


def quest() -> World:
    """Four things to do in order, at four of six places, within fifty steps; success is rare."""

    def step(state: tuple[int, ...], action: int) -> Hashable:
        task, place, done = state
        if action < 2:
            return (task, int(np.clip(place + 2 * action - 1, 0, 5)), done)
        if action == 2 and place == QUESTS[task][done]:
            return WON if done == 3 else (task, place, done + 1)
        return state

    def parts(state: tuple[int, ...]) -> list[Hashable]:
        task, place, done = state
        return [("at", task, place, done), ("wanted", int(np.sign(QUESTS[task][done] - place)))]

    starts = [(task, 2, 0) for task in range(len(QUESTS))]
    return build("quest", starts, 4, step, horizon=50, start=0.02, parts_of=parts)


def household() -> World:
    """Twenty tasks: carry a thing from one of five rooms to another through the hall (room 5).

    The policy sees the next goal and whether it is there, so learning transfers between tasks.
    """
    tasks = [(thing, goal) for thing in range(5) for goal in range(5) if thing != goal]

    def step(state: tuple[int, ...], action: int) -> Hashable:
        task, room, holds = state
        thing, goal = tasks[task]
        if action < 5:
            return (task, action, holds) if room == 5 else state
        if action == 5:
            return (task, 5, holds)
        if action == 6:
            return (task, room, 1) if room == thing else state
        return WON if room == goal and holds else state

    def parts(state: tuple[int, ...]) -> list[Hashable]:
        task, room, holds = state
        wanted = tasks[task][holds]
        return [("at", room, holds), ("wanted", wanted, "hall" if room == 5 else room == wanted, holds)]

    starts = [(task, 5, 0) for task in range(len(tasks))]
    return build("household", starts, 8, step, horizon=30, start=0.05, parts_of=parts)


STANDS = [(0, 0), (0, 4), (4, 0), (4, 3)]
#: Walls between adjacent fields.
WALLS = {((0, 1), (0, 2)), ((1, 1), (1, 2)), ((3, 0), (3, 1)), ((4, 0), (4, 1)), ((3, 2), (3, 3)), ((4, 2), (4, 3))}
FARES = 100


def taxi() -> World:
    """gymnasium's Taxi: a state key has the positions, but not the destination, which the policy knows."""

    def step(state: tuple[int, ...], action: int) -> Hashable:
        row, column, fetch, bring, aboard = state
        if action < 4:
            down, right = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
            after = (min(max(row + down, 0), 4), min(max(column + right, 0), 4))
            way = tuple(sorted([(row, column), after]))
            return state if way in WALLS else (*after, fetch, bring, aboard)
        if action == 4:
            return (row, column, fetch, bring, 1) if (row, column) == STANDS[fetch] else state
        return WON if aboard and (row, column) == STANDS[bring] else state

    def parts(state: tuple[int, ...]) -> list[Hashable]:
        row, column, fetch, bring, aboard = state
        return [(row, column, bring if aboard else fetch, aboard)]

    fares = [
        (row, column, fetch, bring, 0)
        for row in range(5) for column in range(5) for fetch in range(4) for bring in range(4) if fetch != bring
    ]  # fmt: skip
    chosen = np.random.default_rng(0).choice(len(fares), FARES, replace=False)
    return build(
        "taxi", [fares[n] for n in chosen], 6, step, horizon=40, start=0.6, parts_of=parts,
        name_of=lambda s: (s[0], s[1], "aboard" if s[4] else s[2]),
    )  # fmt: skip


WORLDS: dict[str, Callable[[], World]] = {
    "chain": chain, "key-door": key_door, "deduction": deduction, "distractors": distractors, "slippery": slippery,
    "loops": loops, "traps": traps, "quest": quest, "household": household, "aliased": aliased, "noisy": noisy,
    "taxi": taxi,
}  # fmt: skip
