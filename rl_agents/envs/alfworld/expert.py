"""The scripted expert of alfworld, which reads only the observation texts.

It keeps a map of the places that it has seen. It searches likely places for the object first, and open places before
closed ones, changes the object's state if the task requires that, and places it. It works for generated and official
games. Its commands are those of ALFWorld (``move X to Y``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rl_agents.envs.alfworld.families import CHANGES, Goal, read_goal
from rl_agents.envs.alfworld.scenes import HOLDS, LAMP_PLACES, LAMPS, OPENABLE

_LAMPS = {kind.lower() for kind in LAMPS}
_MAY_HOLD = {
    place.lower(): {kind.lower() for kind in kinds} | (_LAMPS if place in LAMP_PLACES else set())
    for place, kinds in HOLDS.items()
}
_OPENABLE = {place.lower() for place in OPENABLE}

_NAME = r"([\w-]+ \d+)"
_ARRIVE = re.compile(rf"You arrive at {_NAME}\.")
_FACING = re.compile(rf"You are facing the {_NAME}\.")
_CLOSED = re.compile(rf"(?:The {_NAME} is closed|You close the {_NAME})\.")
_OPEN = re.compile(rf"The {_NAME} is open\. In it, you see ([^.]*)\.")
_ON = re.compile(rf"On the {_NAME}, you see ([^.]*)\.")
_TAKE = re.compile(rf"You pick up the {_NAME} from the {_NAME}\.")
_MOVE = re.compile(rf"You move the {_NAME} to the {_NAME}\.")
_CHANGE = re.compile(rf"You (clean|heat|cool) the {_NAME} using the {_NAME}\.")
_ITEM = re.compile(rf"\ba {_NAME}")

_STATE_OF_VERB = {verb: state for state, (verb, *_) in CHANGES.items()}


@dataclass(frozen=True, slots=True)
class Said:
    """The content of a text: the player's place, closed places, contents of places, and changes."""

    at: str | None
    closed: str | None
    opened: tuple[tuple[str, tuple[str, ...]], ...]
    shown: tuple[tuple[str, tuple[str, ...]], ...]
    taken: str | None
    moved: tuple[tuple[str, str], ...]
    changed: tuple[tuple[str, str], ...]


@lru_cache(maxsize=8192)  # a state key reads the whole episode again at every step, and texts repeat
def _said(text: str) -> Said:
    at, closed, shown = _ARRIVE.search(text) or _FACING.search(text), _CLOSED.search(text), _ON.search(text)
    taken, moved, changed = _TAKE.search(text), _MOVE.search(text), _CHANGE.search(text)
    return Said(
        at=at and at[1],
        closed=closed and (closed[1] or closed[2]),
        opened=tuple((match[1], tuple(_ITEM.findall(match[2]))) for match in _OPEN.finditer(text)),
        shown=((shown[1], tuple(_ITEM.findall(shown[2]))),) if shown else (),
        taken=taken and taken[1],
        moved=((moved[1], moved[2]),) if moved else (),
        changed=((changed[2], _STATE_OF_VERB[changed[1]]),) if changed else (),
    )


def kind_of(name: str) -> str:
    """Return the type in a name: ``mug`` of ``mug 2``."""
    return name.rpartition(" ")[0]


class Expert:
    """A player of the episode with this first observation (room and task): alternate `choose` and `observe`."""

    def __init__(self, first_observation: str) -> None:
        self.goal: Goal = read_goal(first_observation)
        room = first_observation.partition("Your task is to:")[0].partition("you see")[2]
        self.places: list[str] = _ITEM.findall(room)
        self.contents: dict[str, list[str]] = {}
        self.closed: set[str] = {place for place in self.places if kind_of(place) in _OPENABLE}
        self.at: str | None = None
        self.holding: str | None = None
        self.state: dict[str, str] = {}
        self.refused: set[tuple[str, str]] = set()

    def observe(self, command: str, text: str) -> None:
        if text.startswith("Nothing happens"):
            self._learn_from_failure(command)
        said = _said(text)
        self.at = said.at or self.at
        if said.closed:
            self.closed.add(said.closed)
        for place, things in said.opened:
            self.closed.discard(place)
            self.contents[place] = list(things)
        for place, things in said.shown:
            self.contents[place] = list(things)
        if said.taken:
            self.holding = said.taken
            self._remove(said.taken)
        for thing, place in said.moved:
            self.holding = None
            self.contents.setdefault(place, []).append(thing)
        self.state.update(said.changed)

    def _learn_from_failure(self, command: str) -> None:
        """Correct the map, so that a command without effect is not repeated."""
        if match := re.fullmatch(rf"move {_NAME} to {_NAME}", command):
            self.refused.add((kind_of(match[1]), match[2]))
        elif match := re.fullmatch(rf"take {_NAME} from {_NAME}", command):
            self._remove(match[1])
        elif match := re.fullmatch(rf"(?:go to|open) {_NAME}", command):
            self.contents.setdefault(match[1], [])
            self.closed.discard(match[1])

    def _remove(self, thing: str) -> None:
        for things in self.contents.values():
            if thing in things:
                things.remove(thing)

    def choose(self) -> str:
        if self.holding is None:
            return self._fetch(self.goal.object_type, leave=self._target())
        if kind_of(self.holding) != self.goal.object_type:
            return self._put_away(self.holding)
        return self._light(self.goal.target_type) if self.goal.family.in_light else self._deliver(self.holding)

    def _deliver(self, thing: str) -> str:
        """Bring the held object into its state and to the target."""
        change = self.goal.family.change
        if change and self.state.get(thing) != change:
            verb, appliance_type, _, _ = CHANGES[change]
            appliance = next((p for p in self.places if kind_of(p) == appliance_type.lower()), None)
            return "look" if appliance is None else self._go(appliance) or f"{verb} {thing} with {appliance}"
        target = self._target()
        if target is None:
            return self._put_away(thing)
        return self._reach(target) or f"move {thing} to {target}"

    def _target(self) -> str | None:
        """Return the receptacle to fill: two objects must be in the same one."""
        if self.goal.family.in_light:
            return None
        kind = self.goal.object_type
        places = [p for p in self.places if kind_of(p) == self.goal.target_type and (kind, p) not in self.refused]
        if self.goal.family.count == 1:
            return places[0] if places else None
        return max(places, key=lambda p: sum(kind_of(t) == kind for t in self.contents.get(p, [])), default=None)

    def _light(self, lamp_type: str) -> str:
        lamp, place = self._known(lamp_type, leave=None)
        if lamp and place:
            return self._reach(place) or f"use {lamp}"
        return self._search(lamp_type)

    def _fetch(self, kind: str, leave: str | None) -> str:
        """Take an object of a type; ``leave`` is the place where two objects are collected."""
        thing, place = self._known(kind, leave if self.goal.family.count > 1 else None)
        if thing and place:
            return self._reach(place) or f"take {thing} from {place}"
        return self._search(kind)

    def _known(self, kind: str, leave: str | None) -> tuple[str | None, str | None]:
        """Return an object of a type and its place, preferably here."""
        found = [(t, p) for p, things in self.contents.items() if p != leave for t in things if kind_of(t) == kind]
        return min(found, key=lambda pair: pair[1] != self.at, default=(None, None))

    def _search(self, kind: str) -> str:
        """Go to the most promising unseen place: here, then open ones, then closed ones."""

        def rank(place: str) -> tuple[bool, bool, bool]:
            unlikely = kind not in _MAY_HOLD.get(kind_of(place), {kind})
            return unlikely, place != self.at, place in self.closed

        unseen = [place for place in self.places if place not in self.contents]
        if not unseen:  # an object was overlooked or moved: start again
            self.contents.clear()
            unseen = self.places or ["room 1"]
        place = min(unseen, key=rank)
        return self._reach(place) or f"examine {place}"

    def _put_away(self, thing: str) -> str:
        """Put the held object down, here if possible."""
        places = sorted(self.places, key=lambda p: (p != self.at, p in self.closed))
        kind = kind_of(thing)
        fitting = [p for p in places if (kind, p) not in self.refused and kind in _MAY_HOLD.get(kind_of(p), {kind})]
        place = (fitting or places or ["room 1"])[0]
        return self._reach(place) or f"move {thing} to {place}"

    def _reach(self, place: str) -> str | None:
        """Return the command on the way to an open ``place``; None when there."""
        return self._go(place) or (f"open {place}" if place in self.closed else None)

    def _go(self, place: str) -> str | None:
        return None if self.at == place else f"go to {place}"
