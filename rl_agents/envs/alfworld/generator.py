"""Household games without the official data: ``small/heat/kitchen-3/17`` is always the same solvable game.

A task id is ``<size>/<family>/<layout>/<number>``. From it the generator draws a goal, places the objects so that the
goal is not true yet, and writes the PDDL problem. A game has the parts of ALFWorld's ``game.tw-pddl``. Domain and
grammar are new.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rl_agents.envs.alfworld import scenes
from rl_agents.envs.alfworld.families import BY_SHORT, CHANGES, Family, Goal
from rl_agents.envs.alfworld.native import GameFile
from rl_agents.envs.alfworld.scenes import FAMILY_ROOMS, OPENABLE, Layout, between, can_hold, draw
from rl_agents.errors import InputError, unknown

ID_FORM = "<size>/<family>/<layout>/<number>, for example small/heat/kitchen-3/17"
MAX_NUMBER = 9999
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class TaskId:
    size: str
    family: Family
    layout: Layout
    number: int

    def __str__(self) -> str:
        return f"{self.size}/{self.family.short}/{self.layout.name}/{self.number}"


def read_task_id(task_id: str) -> TaskId:
    parts = task_id.split("/")
    if len(parts) != 4:
        raise InputError(f"alfworld task '{task_id[:80]}': a generated task is {ID_FORM}")
    size, short, layout_name, digits = parts
    layout, room = scenes.layout(size, layout_name), layout_name.rpartition("-")[0]
    if short not in BY_SHORT:
        raise unknown("task family", short[:80], BY_SHORT)
    if room not in FAMILY_ROOMS[short]:
        raise InputError(
            f"alfworld task '{task_id[:80]}': family {short} needs one of {', '.join(FAMILY_ROOMS[short])}"
        )
    if not (digits.isascii() and digits.isdigit() and str(int(digits[:9])) == digits and int(digits) <= MAX_NUMBER):
        raise unknown("number of alfworld task", digits[:20], [f"0 to {MAX_NUMBER}"])
    return TaskId(size, BY_SHORT[short], layout, int(digits))


@dataclass(frozen=True, slots=True)
class Entity:
    """A receptacle or an object: ``mug 2`` has type ``Mug`` and number 2."""

    type: str
    number: int

    @property
    def name(self) -> str:
        return f"{self.type.lower()} {self.number}"

    @property
    def pddl(self) -> str:
        """The name in PDDL.

        Engines number the entities of a type in descending order of their PDDL names, hence the complement. The two
        basins get their type from the end of the name, as in ALFRED.
        """
        complement = f"{99 - self.number:02d}"
        if self.type.endswith("Basin"):
            return f"{self.type.removesuffix('Basin')}_bar_{complement}_bar_{self.type}"
        return f"{self.type}_bar_{complement}"


@dataclass(frozen=True, slots=True)
class Scene:
    """The start of a game: its receptacles, and the place of each object."""

    receptacles: tuple[Entity, ...]
    places: tuple[tuple[Entity, Entity], ...]


def feasible_goals(family: Family, layout: Layout) -> list[Goal]:
    """Return the goals of a family that a layout has room for, in a fixed order.

    The target may not be the appliance that changes the object's state, and the object must have a place that is not
    already its target.
    """
    receptacle_types = [kind for kind, _ in layout.receptacles]
    if family.in_light:
        return [Goal(family, kind, layout.lamp) for kind in layout.object_types if layout.lamp]
    appliance = CHANGES[family.change][1] if family.change else None
    changeable = {None: None, "clean": scenes.CLEANABLE, "hot": scenes.HEATABLE, "cool": scenes.COOLABLE}[family.change]
    goals = []
    for object_type in layout.object_types:
        if changeable is not None and object_type not in changeable:
            continue
        homes = [kind for kind in receptacle_types if can_hold(kind, object_type)]
        goals += [Goal(family, object_type, kind) for kind in homes if kind != appliance and len(homes) > 1]
    return goals


def draw_scene(layout: Layout, goal: Goal, rng: random.Random) -> Scene:
    """Place the objects of a game: those of the goal first, then others up to the layout's number of objects."""
    receptacles = tuple(Entity(kind, n) for kind, count in layout.receptacles for n in range(1, count + 1))
    wanted = [goal.object_type] * between(rng, goal.family.count, goal.family.count + 1)
    wanted += [layout.lamp] if layout.lamp else []
    distractors = [kind for kind in layout.object_types if kind != goal.object_type]
    wanted += [draw(rng, distractors) for _ in range(between(rng, *layout.objects) - len(wanted))]
    counts: dict[str, int] = {}
    places = []
    for kind in wanted:
        counts[kind] = counts.get(kind, 0) + 1
        homes = [place for place in receptacles if can_hold(place.type, kind)]
        if kind == goal.object_type and not goal.family.change:
            homes = [place for place in homes if place.type != goal.target_type]
        places.append((Entity(kind, counts[kind]), draw(rng, homes)))
    return Scene(receptacles, tuple(places))


def problem_text(name: str, scene: Scene, goal: Goal) -> str:
    """Return the PDDL problem of a game; each receptacle has its own location."""
    location = {place: f"loc_bar_{i}" for i, place in enumerate(scene.receptacles, start=1)}
    lines = [
        f"(define (problem {name})",
        "(:domain alfred)",
        "(:objects",
        "agent1 - agent",
        *(f"{place} - location" for place in ["loc_bar_0", *location.values()]),
        *(f"{place.pddl} - receptacle" for place in scene.receptacles),
        *(f"{thing.pddl} - object" for thing, _ in scene.places),
        *_type_lines(scene),
        ")",
        "(:init",
        "(atLocation agent1 loc_bar_0)",
        *_receptacle_facts(location),
        *_object_facts(scene, location),
        ")",
        goal.pddl(),
        ")",
    ]
    return "\n".join(lines) + "\n"


def _type_lines(scene: Scene) -> list[str]:
    """Declare the types; the domain names three appliances and two knives even where a room lacks them."""
    places = {"SinkBasin", "Microwave", "Fridge", *(place.type for place in scene.receptacles)}
    things = {"Knife", "ButterKnife", *(thing.type for thing, _ in scene.places)}
    return [f"{kind}Type - rtype" for kind in sorted(places)] + [f"{kind}Type - otype" for kind in sorted(things)]


def _receptacle_facts(location: dict[Entity, str]) -> Iterator[str]:
    for place, where in location.items():
        yield f"(receptacleType {place.pddl} {place.type}Type)"
        yield f"(receptacleAtLocation {place.pddl} {where})"
        if place.type in OPENABLE:
            yield f"(openable {place.pddl})"


def _object_facts(scene: Scene, location: dict[Entity, str]) -> Iterator[str]:
    place_types = sorted({place.type for place in scene.receptacles})
    for kind in sorted({thing.type for thing, _ in scene.places}):
        yield from (f"(canContain {place}Type {kind}Type)" for place in place_types if can_hold(place, kind))
    properties = (
        ("cleanable", scenes.CLEANABLE),
        ("heatable", scenes.HEATABLE),
        ("coolable", scenes.COOLABLE),
        ("sliceable", scenes.SLICEABLE),
        ("toggleable", scenes.LAMPS),
    )
    for thing, place in scene.places:
        yield f"(objectType {thing.pddl} {thing.type}Type)"
        yield f"(inReceptacle {thing.pddl} {place.pddl})"
        yield f"(objectAtLocation {thing.pddl} {location[place]})"
        if thing.type not in scenes.LAMPS:
            yield f"(pickupable {thing.pddl})"
        yield from (f"({name} {thing.pddl})" for name, kinds in properties if thing.type in kinds)


@cache
def logic() -> tuple[str, str]:
    """Return the texts of the domain and of the grammar (with ``UNKNOWN GOAL`` for the task)."""
    return (_HERE / "domain.pddl").read_text(encoding="utf-8"), (_HERE / "grammar.twl2").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Draft:
    """A drawn task, before it is written as a game."""

    task: TaskId
    goal: Goal
    scene: Scene
    sentence: str


def draft(task_id: str) -> Draft:
    task = read_task_id(task_id)
    rng = random.Random(f"alfworld/{task}")
    goal = draw(rng, feasible_goals(task.family, task.layout))
    return Draft(task, goal, draw_scene(task.layout, goal, rng), goal.sentence(between(rng, 0, 1)))


def generated_file(task_id: str) -> GameFile:
    """Return the game of a task; its ``path`` is the task id."""
    drawn = draft(task_id)
    domain, grammar = logic()
    return GameFile(
        path=Path(task_id),
        domain=domain,
        grammar=grammar.replace("UNKNOWN GOAL", drawn.sentence),
        problem=problem_text(task_id.replace("/", "_"), drawn.scene, drawn.goal),
    )
