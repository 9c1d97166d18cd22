"""The six task families of ALFWorld: their names, their sentences and their goals.

Source: ALFWorld, section 2 and table 1. The two wordings of each family are those of its games, and so are the goals:
any object of the type counts, in any receptacle of the type.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from rl_agents.errors import InputError


@dataclass(frozen=True, slots=True)
class Family:
    """A task family.

    Attributes:
        name: ALFWorld's name (``task_type`` of a trajectory).
        short: the name in task ids of generated games.
        wordings: task sentences with ``{obj}`` and ``{target}``.
        change: the state that the object must reach: ``clean``, ``hot``, ``cool`` or None.
        count: number of objects that must be placed.
    """

    name: str
    short: str
    wordings: tuple[str, str]
    change: str | None = None
    count: int = 1

    @property
    def in_light(self) -> bool:
        """Whether the task is to look at the object under a lamp instead of placing it."""
        return self.short == "look"


FAMILIES = (
    Family("pick_and_place_simple", "pick", ("put a {obj} in {target}", "put some {obj} on {target}")),
    Family("look_at_obj_in_light", "look", ("look at {obj} under the {target}", "examine the {obj} with the {target}")),
    Family(
        "pick_clean_then_place_in_recep",
        "clean",
        ("put a clean {obj} in {target}", "clean some {obj} and put it in {target}"),
        change="clean",
    ),
    Family(
        "pick_heat_then_place_in_recep",
        "heat",
        ("put a hot {obj} in {target}", "heat some {obj} and put it in {target}"),
        change="hot",
    ),
    Family(
        "pick_cool_then_place_in_recep",
        "cool",
        ("put a cool {obj} in {target}", "cool some {obj} and put it in {target}"),
        change="cool",
    ),
    Family(
        "pick_two_obj_and_place",
        "two",
        ("put two {obj} in {target}", "find two {obj} and put them in {target}"),
        count=2,
    ),
)

BY_NAME = {family.name: family for family in FAMILIES}
BY_SHORT = {family.short: family for family in FAMILIES}

#: state -> (verb of the command, type of the appliance, predicate: the object can reach it, predicate: it has it)
CHANGES = {
    "clean": ("clean", "SinkBasin", "cleanable", "isClean"),
    "hot": ("heat", "Microwave", "heatable", "isHot"),
    "cool": ("cool", "Fridge", "coolable", "isCool"),
}


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a game. Types are as in PDDL (``CounterTop``) in generated games, lower case when read from text.

    Attributes:
        object_type: type of the object to take.
        target_type: the receptacle's type, or the lamp's in the family ``look``.
    """

    family: Family
    object_type: str
    target_type: str

    def sentence(self, wording: int) -> str:
        """Return the task sentence, without the full stop; ``wording`` is 0 or 1."""
        template = self.family.wordings[wording]
        return template.format(obj=self.object_type.lower(), target=self.target_type.lower())

    def pddl(self) -> str:
        if self.family.in_light:
            return _light_goal(self.object_type, self.target_type)
        placed = f"(objectType ?{{o}} {self.object_type}Type) (inReceptacle ?{{o}} ?r)"
        parts = [f"(receptacleType ?r {self.target_type}Type)", placed.format(o="o")]
        if self.family.change:
            _, _, can, is_ = CHANGES[self.family.change]
            parts += [f"({can} ?o)", f"({is_} ?o)"]
        if self.family.count == 2:
            parts += [f"(exists (?o2 - object) (and (not (= ?o ?o2)) {placed.format(o='o2')}))"]
        return f"(:goal (exists (?r - receptacle ?o - object) (and {' '.join(parts)})))"


def _light_goal(object_type: str, lamp_type: str) -> str:
    lit = (
        f"(exists (?lamp - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?lamp {lamp_type}Type) "
        "(isToggled ?lamp) (inReceptacle ?lamp ?r) (receptacleAtLocation ?r ?l) (atLocation ?a ?l)))"
    )
    held = f"(exists (?o - object ?a - agent) (and (objectType ?o {object_type}Type) (holds ?a ?o)))"
    return f"(:goal (and {lit} {held}))"


#: The simple family comes last: "put two mug in desk" must not be read as a task of it.
_PATTERNS = [
    (family, re.compile(re.escape(wording).replace(r"\{obj\}", r"(\w+)").replace(r"\{target\}", r"(\w+)")))
    for family in sorted(FAMILIES, key=lambda f: f.short == "pick")
    for wording in (*family.wordings, *([w.replace(" on ", " in ") for w in family.wordings if " on " in w]))
]


def read_goal(text: str) -> Goal:
    """Read the task from a text that contains its sentence, such as the first observation."""
    task = text.rpartition("Your task is to:")[2].strip().lower()
    for family, pattern in _PATTERNS:
        if match := pattern.match(task):
            return Goal(family, match[1], match[2])
    raise InputError(f"no task of the six families in '{task[:120]}'")
