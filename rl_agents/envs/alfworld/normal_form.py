"""Disjunctive normal form of PDDL formulas.

Every formula becomes a list of cases; it holds where one of them does. A case is a conjunction: facts that must hold
for some values of its own variables, and tests on those values. A universal quantifier becomes a test that no
counterexample exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from rl_agents.envs.alfworld.pddl import EQUALS, And, Atom, Exists, Forall, Formula, Not, Or, Typed
from rl_agents.errors import InputError

MAX_CASES = 256


@dataclass(frozen=True)
class Literal:
    """A test: ``atom`` holds, or (not ``positive``) does not. All its variables have values by then."""

    atom: Atom
    positive: bool


@dataclass(frozen=True)
class NoneOf:
    """A test: no values of the cases' own variables make one of ``cases`` true."""

    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Case:
    """A conjunction.

    Attributes:
        variables: variables of this case alone, existentially quantified.
        facts: atoms that must hold (none of them equalities).
        tests: what else must hold.
    """

    variables: tuple[Typed, ...] = ()
    facts: tuple[Atom, ...] = ()
    tests: tuple[Literal | NoneOf, ...] = ()

    def joined(self, other: Case) -> Case:
        return Case(self.variables + other.variables, self.facts + other.facts, self.tests + other.tests)


@lru_cache(maxsize=1024)  # games share their domain's conditions
def cases(formula: Formula) -> tuple[Case, ...]:
    """Return the cases of ``formula``; none when it can never hold.

    Raises:
        InputError: more than 256 cases.
    """
    fresh = count(1)

    def renamed(atom: Atom, names: Mapping[str, str]) -> Atom:
        return Atom(atom.predicate, tuple(names.get(argument, argument) for argument in atom.arguments))

    def scope(variables: tuple[Typed, ...], names: Mapping[str, str]) -> tuple[tuple[Typed, ...], dict[str, str]]:
        inner = [Typed(f"{variable.name}#{next(fresh)}", variable.type) for variable in variables]
        return tuple(inner), {**names, **{old.name: new.name for old, new in zip(variables, inner, strict=True)}}

    def every(parts: tuple[Formula, ...], positive: bool, names: Mapping[str, str]) -> list[Case]:
        result = [Case()]
        for part in parts:
            options = walk(part, positive, names)
            if len(result) * len(options) > MAX_CASES:
                raise InputError(f"a condition with more than {MAX_CASES} alternatives")
            result = [left.joined(right) for left in result for right in options]
        return result

    def walk(part: Formula, positive: bool, names: Mapping[str, str]) -> list[Case]:
        match part:
            case Atom(predicate):
                atom = renamed(part, names)
                if positive and predicate != EQUALS:
                    return [Case(facts=(atom,))]
                return [Case(tests=(Literal(atom, positive),))]
            case Not(inner):
                return walk(inner, not positive, names)
            case And(parts) | Or(parts):
                if isinstance(part, And) == positive:
                    return every(parts, positive, names)
                return [option for inner in parts for option in walk(inner, positive, names)]
            case Exists(variables, inner) | Forall(variables, inner):
                own, names = scope(variables, names)
                if isinstance(part, Exists) == positive:
                    return [Case(variables=own).joined(option) for option in walk(inner, positive, names)]
                counterexamples = walk(inner, not positive, names)
                return [Case(tests=(NoneOf(tuple(Case(own).joined(option) for option in counterexamples)),))]

    return tuple(walk(formula, True, {}))
