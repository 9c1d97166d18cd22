"""Rooms of generated games: their receptacles, the objects that each may hold, and the layouts drawn from that.

A layout (``kitchen-3`` of a size) is drawn from its name alone. Layouts 1 to 12 are for training, 13 to 16 are never
trained on. The names of types are ALFRED's, so that prompts and models fit both. The rooms (``scenes.json``) are new.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from pydantic import TypeAdapter

from rl_agents.envs.task_sets import stored_words
from rl_agents.errors import InputError, unknown

TRAIN_LAYOUTS = range(1, 13)
UNSEEN_LAYOUTS = range(13, 17)
SIZES = ("small", "full")

T = TypeVar("T")


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FOOD = _words("Apple Bread Egg Lettuce Potato Tomato")
DISHES = _words("Bowl Cup Mug Plate")
COOKWARE = _words("Kettle Pan Pot")
CUTLERY = _words("ButterKnife Fork Knife Ladle Spatula Spoon")
LAMPS = _words("DeskLamp FloorLamp")

CLEANABLE = frozenset((*FOOD, *DISHES, *COOKWARE, *CUTLERY, "Cloth", "DishSponge", "SoapBar")) - {"Bread"}
HEATABLE = frozenset((*FOOD, *DISHES)) - {"Bowl", "Lettuce"}
COOLABLE = frozenset((*FOOD, *DISHES, "Pan", "Pot"))
SLICEABLE = frozenset(FOOD) - {"Egg"}
OPENABLE = frozenset(_words("Cabinet Drawer Fridge Microwave Safe"))

_STORED = stored_words(__file__, "scenes.json")
#: receptacle type -> object types that it may hold, except lamps (`LAMP_PLACES`)
HOLDS = TypeAdapter(dict[str, frozenset[str]]).validate_python(_STORED["holds"])
LAMP_PLACES = frozenset(("CoffeeTable", "Desk", "Dresser", "Shelf", "SideTable", "TVStand"))


@dataclass(frozen=True, slots=True)
class RoomSpec:
    """The contents from which the layouts of a kind of room are drawn, for one size.

    Attributes:
        receptacles: type -> (least, most) number of them.
        total: (least, most) number of receptacles.
        staples: object types of every layout.
        others: object types of which a layout has ``kinds - len(staples)``.
        objects: (least, most) number of objects in a game.
        lamp: the lamp's type where the room has one.
    """

    receptacles: Mapping[str, tuple[int, int]]
    total: tuple[int, int]
    staples: tuple[str, ...]
    others: tuple[str, ...]
    kinds: int
    objects: tuple[int, int]
    lamp: str | None = None


#: size -> room -> its contents
ROOMS = TypeAdapter(dict[str, dict[str, RoomSpec]]).validate_python(_STORED["rooms"])
#: family -> rooms where it can be played
FAMILY_ROOMS: Mapping[str, tuple[str, ...]] = {
    "pick": ("kitchen", "bathroom", "bedroom", "livingroom"),
    "look": ("bedroom", "livingroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "two": ("kitchen", "bathroom", "bedroom", "livingroom"),
}


@dataclass(frozen=True, slots=True)
class Layout:
    """A room: the number of receptacles of each type, and the types of its objects."""

    name: str
    receptacles: tuple[tuple[str, int], ...]
    object_types: tuple[str, ...]
    objects: tuple[int, int]
    lamp: str | None


def can_hold(receptacle_type: str, object_type: str) -> bool:
    return receptacle_type in LAMP_PLACES if object_type in LAMPS else object_type in HOLDS[receptacle_type]


def between(rng: random.Random, low: int, high: int) -> int:
    """Return a number from ``low`` to ``high``. Only ``random()`` is promised to be the same in every Python."""
    return low + int(rng.random() * (high - low + 1))


def draw(rng: random.Random, items: Sequence[T]) -> T:
    return items[between(rng, 0, len(items) - 1)]


def draw_many(rng: random.Random, items: Iterable[T], count: int) -> list[T]:
    left = list(items)
    return [left.pop(between(rng, 0, len(left) - 1)) for _ in range(count)]


def layout(size: str, name: str) -> Layout:
    if size not in ROOMS:
        raise unknown("size", size[:80], SIZES)
    room = name.rpartition("-")[0]
    if room not in ROOMS[size]:
        raise unknown("room", (room or name)[:80], ROOMS[size])
    layouts = _layouts(size, room)
    if name not in layouts:
        raise InputError(
            f"unknown layout '{name[:80]}': {room}-{TRAIN_LAYOUTS[0]} to {room}-{UNSEEN_LAYOUTS[-1]} exist"
        )
    return layouts[name]


@lru_cache(maxsize=8)
def _layouts(size: str, room: str) -> Mapping[str, Layout]:
    """Draw the layouts of a room, all different."""
    plan = ROOMS[size][room]
    layouts: dict[str, Layout] = {}
    drawn: set[tuple[object, object]] = set()
    for number in (*TRAIN_LAYOUTS, *UNSEEN_LAYOUTS):
        name = f"{room}-{number}"
        rng = random.Random(f"layout/{size}/{name}")
        content = None
        while content is None or content in drawn:
            others = draw_many(rng, plan.others, plan.kinds - len(plan.staples))
            content = (_draw_receptacles(plan, rng), tuple(sorted((*plan.staples, *others))))
        drawn.add(content)
        layouts[name] = Layout(name, *content, plan.objects, plan.lamp)
    return layouts


def _draw_receptacles(plan: RoomSpec, rng: random.Random) -> tuple[tuple[str, int], ...]:
    counts = {kind: least for kind, (least, _) in plan.receptacles.items()}
    spare = [kind for kind, (least, most) in plan.receptacles.items() for _ in range(most - least)]
    total = between(rng, *plan.total)
    for kind in draw_many(rng, spare, min(len(spare), max(0, total - sum(counts.values())))):
        counts[kind] += 1
    return tuple((kind, count) for kind, count in counts.items() if count)


def kinds() -> list[str]:
    held = {kind for kinds in HOLDS.values() for kind in kinds}
    return sorted({kind.lower() for kind in (*HOLDS, *held, *LAMPS)})
