"""What one game is about: its objects, the names that the player reads, and which facts hold.

Objects are numbered in the order of their identifiers, so that sorting rows of numbers sorts them as the real engine
sorts its facts. Facts that no action changes are kept once per game, with indexes; the others make up the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rl_agents.envs.alfworld.pddl import ROOT_TYPE, Atom, Domain, Problem

Row = tuple[int, ...]

#: The changeable facts of a state: one set of rows for every slot of `World.slots`.
Facts = tuple[frozenset[Row], ...]

#: Prefix of the facts that the real engine keeps about what stopped being true.
NEGATED = "not_"

_CHARACTERS = {"_bar_": "|", "_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}


class StaticRelation:
    """The rows of a predicate that never changes, sorted, with an index for every set of known positions asked for."""

    __slots__ = ("_indexes", "rows", "set")

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = tuple(sorted(rows))
        self.set = frozenset(self.rows)
        self._indexes: dict[tuple[int, ...], dict[Row, tuple[Row, ...]]] = {}

    def index(self, positions: tuple[int, ...]) -> dict[Row, tuple[Row, ...]]:
        """Map the values at ``positions`` to the rows that have them, in order."""
        index = self._indexes.get(positions)
        if index is None:
            lists: dict[Row, list[Row]] = {}
            for row in self.rows:
                lists.setdefault(tuple(row[position] for position in positions), []).append(row)
            index = {key: tuple(rows) for key, rows in lists.items()}
            self._indexes[positions] = index
        return index


@dataclass(frozen=True)
class World:
    """
    Attributes:
        identifiers, names, types: of every object, by number. A name is what the player reads (``cabinet 8``).
        supertypes: type -> its strict supertypes.
        static: predicates that no action changes.
        slots: changeable predicate (or ``not_`` and its name) -> position in `Facts`.
    """

    identifiers: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]
    supertypes: dict[str, frozenset[str]]
    static: dict[str, StaticRelation]
    slots: dict[str, int]
    numbers: dict[str, int] = field(repr=False)

    def rows(self, predicate: str, facts: Facts) -> frozenset[Row]:
        """Return what holds of ``predicate``; nothing does of a predicate that the game does not have."""
        slot = self.slots.get(predicate)
        if slot is not None:
            return facts[slot]
        relation = self.static.get(predicate)
        return relation.set if relation else frozenset()

    def is_a(self, kind: str, ancestor: str) -> bool:
        """Whether type ``kind`` is ``ancestor`` or one of its subtypes."""
        return kind == ancestor or ancestor in self.supertypes[kind]

    def of_type(self, kind: str) -> frozenset[int]:
        """Return the objects of a type; a type that nobody declared has none."""
        if kind == ROOT_TYPE:
            return frozenset(range(len(self.types)))
        return frozenset(number for number, own in enumerate(self.types) if self.is_a(own, kind))


def build_world(domain: Domain, problem: Problem, read: frozenset[str]) -> tuple[World, Facts]:
    """Number objects, name them, and split the initial facts into static and changeable ones.

    Args:
        read: predicates (with ``not_`` where so asked) that a condition, the goal or a text looks at. Nothing else is
            kept, so that an action whose effect nobody can see leaves the state as it was.
    """
    identifiers = tuple(sorted(problem.objects))
    numbers = {identifier: number for number, identifier in enumerate(identifiers)}
    changing = {effect.atom.predicate for action in domain.actions for effect in action.effects}
    rows: dict[str, set[Row]] = {predicate: set() for predicate in read}
    for fact in problem.facts:
        if fact.predicate in read:
            rows[fact.predicate].add(numbers_of(fact, numbers))
    dynamic = sorted(p for p in read if p in changing or (p.startswith(NEGATED) and p[len(NEGATED) :] in changing))
    names = player_names(sorted(problem.mentioned))
    world = World(
        identifiers=identifiers,
        names=tuple(names.get(identifier, identifier) for identifier in identifiers),
        types=tuple(problem.objects[identifier] for identifier in identifiers),
        supertypes=domain.supertypes,
        static={predicate: StaticRelation(found) for predicate, found in rows.items() if predicate not in dynamic},
        slots={predicate: slot for slot, predicate in enumerate(dynamic)},
        numbers=numbers,
    )
    return world, tuple(frozenset(rows[predicate]) for predicate in dynamic)


def numbers_of(atom: Atom, numbers: dict[str, int]) -> Row:
    return tuple(numbers[argument] for argument in atom.arguments)


def player_names(identifiers: Sequence[str]) -> dict[str, str]:
    """Name objects as ALFWorld does: ``Cabinet_bar__minus_01...`` becomes ``cabinet 8``.

    The name is what stands before the first ``_bar_`` (plus ``basin`` where the identifier has that word), and objects
    of one name are numbered downwards in the order of their identifiers. Others keep their identifier and a trailing
    blank. Only objects that the initial state mentions count.

    Args:
        identifiers: sorted.
    """
    kinds: dict[str, str] = {}
    for identifier in identifiers:
        kind, bar, _ = identifier.partition("_bar_")
        if bar:
            kinds[identifier] = _plain(kind) + ("basin" if "basin" in identifier else "")
    left = Counter(kinds.values())
    names = {}
    for identifier in identifiers:
        if identifier in kinds:
            kind = kinds[identifier]
            names[identifier] = f"{kind} {left[kind]}"
            left[kind] -= 1
        else:
            names[identifier] = _plain(identifier) + " "
    return names


def _plain(text: str) -> str:
    for code, character in _CHARACTERS.items():
        text = text.replace(code, character)
    return text
