"""What PDDL says (the ADL part of PDDL 2.2): formulas, effects, actions, domains and problems; see `pddl_parser`."""

from __future__ import annotations

from dataclasses import dataclass

ROOT_TYPE = "object"
EQUALS = "="


@dataclass(frozen=True)
class Typed:
    """A variable (``?x``) or an object, and its declared type."""

    name: str
    type: str


@dataclass(frozen=True)
class Atom:
    """``(predicate argument ...)``; an argument is a variable (``?x``) or an object's name."""

    predicate: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    part: Formula


@dataclass(frozen=True)
class And:
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Or:
    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Exists:
    variables: tuple[Typed, ...]
    part: Formula


@dataclass(frozen=True)
class Forall:
    variables: tuple[Typed, ...]
    part: Formula


Formula = Atom | Not | And | Or | Exists | Forall
TRUE = And(())


@dataclass(frozen=True)
class Effect:
    """For every value of ``variables`` with ``condition``: ``atom`` becomes true (``positive``) or false."""

    variables: tuple[Typed, ...]
    condition: Formula
    atom: Atom
    positive: bool


@dataclass(frozen=True)
class Action:
    name: str
    parameters: tuple[Typed, ...]
    precondition: Formula
    effects: tuple[Effect, ...]


@dataclass(frozen=True)
class Domain:
    """
    Attributes:
        supertypes: type -> its strict supertypes; every type is an ``object``.
        arities: predicate -> number of arguments.
        actions: those with at least one effect; an action without any is never available.
    """

    name: str
    supertypes: dict[str, frozenset[str]]
    arities: dict[str, int]
    constants: tuple[Typed, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Problem:
    """
    Attributes:
        objects: object -> declared type, the domain's constants included.
        facts: what is true at the start.
        mentioned: objects that the initial state names, also those that only numeric assignments name.
    """

    objects: dict[str, str]
    facts: tuple[Atom, ...]
    mentioned: frozenset[str]
    goal: Formula
