"""The objects, names and facts of one game, and the search for values that make a condition true.

Objects are numbered in the order of their identifiers, so that sorting rows of numbers sorts them as the real engine
sorts its facts. Facts that no action changes are kept once per game, with indexes; the others are the state.

Values that make a case of a formula true in a state are found by nested loops over indexed facts. `compile_case` orders
the facts of a case once per game: loops start with the predicates that have the fewest rows (the held object, the
agent's place) and continue along known values. Tests run as soon as their variables have values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rl_agents.envs.alfworld.pddl import EQUALS, ROOT_TYPE, Atom, Case, Domain, Literal, NoneOf, Problem, Typed

#: The objects of a fact or an action, by their numbers.
Objects = tuple[int, ...]

#: The changeable facts of a state: one set of rows for every slot of `World.slots`.
Facts = tuple[frozenset[Objects], ...]

#: Prefix of the facts that the real engine keeps about facts that became false.
NEGATED = "not_"

_CHARACTERS = {"_bar_": "|", "_minus_": "-", "_plus_": "+", "_dot_": ".", "_comma_": ","}


class StaticRelation:
    """The sorted rows of a predicate that never changes, with an index for each requested set of known positions."""

    __slots__ = ("_indexes", "rows", "set")

    def __init__(self, rows: Iterable[Objects]) -> None:
        self.rows = tuple(sorted(rows))
        self.set = frozenset(self.rows)
        self._indexes: dict[tuple[int, ...], dict[Objects, tuple[Objects, ...]]] = {}

    def index(self, positions: tuple[int, ...]) -> dict[Objects, tuple[Objects, ...]]:
        """Map the values at ``positions`` to the rows that have them, in order."""
        index = self._indexes.get(positions)
        if index is None:
            lists: dict[Objects, list[Objects]] = {}
            for row in self.rows:
                lists.setdefault(tuple(row[position] for position in positions), []).append(row)
            index = {key: tuple(rows) for key, rows in lists.items()}
            self._indexes[positions] = index
        return index


@dataclass(frozen=True)
class World:
    """
    Attributes:
        identifiers, names, types: of every object, by number. A name is the player's, such as ``cabinet 8``.
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

    def rows(self, predicate: str, facts: Facts) -> frozenset[Objects]:
        """Return the rows of ``predicate``; none for a predicate that the game does not have."""
        slot = self.slots.get(predicate)
        if slot is not None:
            return facts[slot]
        relation = self.static.get(predicate)
        return relation.set if relation else frozenset()

    def of_type(self, kind: str) -> frozenset[int]:
        """Return the objects of a type; an undeclared type has none."""
        if kind == ROOT_TYPE:
            return frozenset(range(len(self.types)))
        return frozenset(n for n, own in enumerate(self.types) if own == kind or kind in self.supertypes[own])


def build_world(domain: Domain, problem: Problem, read: frozenset[str]) -> tuple[World, Facts]:
    """Number objects, name them, and split the initial facts into static and changeable ones.

    Args:
        read: predicates (also with ``not_``) that a condition, the goal or a text reads. Nothing else is kept, so that
            an action without a visible effect does not change the state.
    """
    identifiers = tuple(sorted(problem.objects))
    numbers = {identifier: number for number, identifier in enumerate(identifiers)}
    changing = {effect.atom.predicate for action in domain.actions for effect in action.effects}
    rows: dict[str, set[Objects]] = {predicate: set() for predicate in read}
    for fact in problem.facts:
        if fact.predicate in read:
            rows[fact.predicate].add(tuple(numbers[argument] for argument in fact.arguments))
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


def player_names(identifiers: Sequence[str]) -> dict[str, str]:
    """Name objects as ALFWorld does: ``Cabinet_bar__minus_01...`` becomes ``cabinet 8``.

    The name is the part before the first ``_bar_`` (plus ``basin`` if the identifier has that word). Objects of one
    name are numbered downwards in the order of their identifiers. Others keep their identifier and get a trailing
    blank. Only objects that the initial state mentions are numbered.

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


Binding = list[int]
Test = Callable[[Facts, Binding], bool]
Rows = Callable[[Facts, Binding], Iterable[Objects]]
RowGetter = Callable[[Sequence[int]], Objects]

#: A term is a variable's position in the binding, or ``~number`` (negative) for an object.
Terms = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One loop: for each of ``rows``, set the ``fresh`` variables (position in the row, variable) and run the tests."""

    rows: Rows
    fresh: tuple[tuple[int, int], ...]
    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class Matcher:
    """A compiled case; ``width`` is the number of its variables, the known ones first."""

    steps: tuple[Step, ...]
    tests: tuple[Test, ...]
    width: int

    def matches(self, facts: Facts, known: Sequence[int] = ()) -> Iterator[Binding]:
        """Yield the bindings that make the case true, each in the same list, which the next one overwrites."""
        binding = [*known, *[0] * (self.width - len(known))]
        if all(test(facts, binding) for test in self.tests):
            yield from _extend(self.steps, 0, facts, binding)

    def holds(self, facts: Facts, known: Sequence[int] = ()) -> bool:
        return next(self.matches(facts, known), None) is not None


def _extend(steps: tuple[Step, ...], depth: int, facts: Facts, binding: Binding) -> Iterator[Binding]:
    if depth == len(steps):
        yield binding
        return
    step = steps[depth]
    for row in step.rows(facts, binding):
        for position, variable in step.fresh:
            binding[variable] = row[position]
        for test in step.tests:
            if not test(facts, binding):
                break
        else:
            yield from _extend(steps, depth + 1, facts, binding)


def compile_case(
    case: Case, world: World, facts: Facts, known: Sequence[str] = (), free: Sequence[Typed] = ()
) -> Matcher | None:
    """Compile ``case``, or return None when it can never hold.

    Args:
        facts: the initial state; its numbers of rows decide the order of the loops.
        known: variables whose values the caller passes.
        free: further variables to find, before the case's own.
    """
    typed = [*free, *case.variables]
    numbering = {name: number for number, name in enumerate([*known, *(variable.name for variable in typed)])}
    domains = {numbering[v.name]: world.of_type(v.type) for v in typed if v.type != ROOT_TYPE}
    atoms: list[tuple[str, Terms]] = []
    for atom in case.facts:
        terms = compile_terms(atom, numbering, world)
        if terms is None:
            return None
        atoms.append((atom.predicate, terms))
    waiting = [_typed_test(variable, domain) for variable, domain in domains.items()]
    waiting += [test for t in case.tests if (test := _compile_test(t, numbering, world, facts)) is not None]

    have = set(range(len(known)))
    entry = _ready(waiting, have)
    steps = []
    while atoms:
        best = min(atoms, key=lambda atom: _expected_rows(atom[0], atom[1], world, facts, have))
        atoms.remove(best)
        predicate, terms = best
        rows = _rows_of(predicate, terms, world, have)
        fresh = {term: position for position, term in enumerate(terms) if term >= 0 and term not in have}
        have |= set(fresh)
        steps.append(Step(rows, tuple((p, term) for term, p in fresh.items()), _ready(waiting, have)))
    for variable in range(len(known), len(numbering)):
        if variable not in have:
            have.add(variable)
            every = tuple((number,) for number in sorted(domains.get(variable, world.of_type(ROOT_TYPE))))
            steps.append(Step(_constant_rows(every), ((0, variable),), _ready(waiting, have)))
    return Matcher(tuple(steps), entry, len(numbering))


def compile_terms(atom: Atom, numbering: dict[str, int], world: World) -> Terms | None:
    """Replace variables by positions and objects by ``~number``; None if the game lacks an object that it names."""
    terms = []
    for argument in atom.arguments:
        if argument in numbering:
            terms.append(numbering[argument])
        elif argument in world.numbers:
            terms.append(~world.numbers[argument])
        else:
            return None
    return tuple(terms)


def value_getter(terms: Terms) -> RowGetter:
    """Return the function from a binding to the row that ``terms`` stand for."""
    if all(term < 0 for term in terms):
        constant = tuple(~term for term in terms)
        return lambda binding: constant
    if len(terms) == 1:
        (only,) = terms
        return lambda binding: (binding[only],)
    if len(terms) == 2 and min(terms) >= 0:
        first, second = terms
        return lambda binding: (binding[first], binding[second])
    return lambda binding: tuple(binding[term] if term >= 0 else ~term for term in terms)


@dataclass(frozen=True)
class _WaitingTest:
    needs: frozenset[int]
    run: Test


def _ready(waiting: list[_WaitingTest], have: set[int]) -> tuple[Test, ...]:
    """Take out the tests whose variables all have values."""
    ready = [test for test in waiting if test.needs <= have]
    waiting[:] = [test for test in waiting if not test.needs <= have]
    return tuple(test.run for test in ready)


def _typed_test(variable: int, domain: frozenset[int]) -> _WaitingTest:
    return _WaitingTest(frozenset([variable]), lambda facts, binding: binding[variable] in domain)


def _compile_test(test: Literal | NoneOf, numbering: dict[str, int], world: World, facts: Facts) -> _WaitingTest | None:
    """Compile a test; None when it always passes."""
    if isinstance(test, NoneOf):
        inner = [compile_case(case, world, facts, known=tuple(numbering)) for case in test.cases]
        matchers = [matcher for matcher in inner if matcher is not None]
        width = len(numbering)
        # It may read any variable, so it waits for all.
        return _WaitingTest(
            frozenset(range(width)), lambda facts, binding: not any(m.holds(facts, binding[:width]) for m in matchers)
        )
    terms = compile_terms(test.atom, numbering, world)
    if test.atom.predicate == EQUALS:
        return _equality(test, terms)
    if terms is None:
        return None  # nothing holds of an object that the game lacks
    row = value_getter(terms)
    needs = frozenset(term for term in terms if term >= 0)
    slot = world.slots.get(test.atom.predicate)
    if slot is not None:
        return _WaitingTest(needs, lambda facts, binding: row(binding) not in facts[slot])
    absent = world.rows(test.atom.predicate, facts)
    return _WaitingTest(needs, lambda facts, binding: row(binding) not in absent)


def _equality(test: Literal, terms: Terms | None) -> _WaitingTest:
    if terms is None:
        equal = len(set(test.atom.arguments)) == 1
        return _WaitingTest(frozenset(), lambda facts, binding: equal == test.positive)
    pair, wanted = value_getter(terms), test.positive
    needs = frozenset(term for term in terms if term >= 0)

    def run(facts: Facts, binding: Binding) -> bool:
        left, right = pair(binding)
        return (left == right) == wanted

    return _WaitingTest(needs, run)


def _expected_rows(predicate: str, terms: Terms, world: World, facts: Facts, have: set[int]) -> float:
    rows = world.rows(predicate, facts)
    expected = float(len(rows))
    for position, term in enumerate(terms):
        if term < 0 or term in have:
            expected /= max(1, len({row[position] for row in rows}))
    return expected


def _constant_rows(rows: tuple[Objects, ...]) -> Rows:
    return lambda facts, binding: rows


def _rows_of(predicate: str, terms: Terms, world: World, have: set[int]) -> Rows:
    """Return the function that finds the rows of a predicate that agree with what is known."""
    positions = tuple(p for p, term in enumerate(terms) if term < 0 or term in have)
    values = value_getter(tuple(terms[p] for p in positions))
    slot = world.slots.get(predicate)
    rows = _static_rows(predicate, positions, values, world) if slot is None else _slot_rows(slot, positions, values)
    new = [(p, term) for p, term in enumerate(terms) if p not in positions]
    repeated = [(terms.index(term), p) for p, term in new if terms.index(term) != p]
    if not repeated:
        return rows
    return lambda facts, binding: [row for row in rows(facts, binding) if all(row[p] == row[q] for p, q in repeated)]


def _static_rows(predicate: str, positions: tuple[int, ...], values: RowGetter, world: World) -> Rows:
    relation = world.static.get(predicate)
    if relation is None:
        return _constant_rows(())
    if not positions:
        return _constant_rows(relation.rows)
    index = relation.index(positions)
    return lambda facts, binding: index.get(values(binding), ())


def _slot_rows(slot: int, positions: tuple[int, ...], values: RowGetter) -> Rows:
    if not positions:
        return lambda facts, binding: facts[slot]
    if len(positions) == 1:
        (only,) = positions

        def filtered(facts: Facts, binding: Binding) -> Iterable[Objects]:
            (value,) = values(binding)
            return [row for row in facts[slot] if row[only] == value]

        return filtered

    def selected(facts: Facts, binding: Binding) -> Iterable[Objects]:
        wanted = values(binding)
        return [row for row in facts[slot] if tuple(row[p] for p in positions) == wanted]

    return selected
