"""Turning symbols of the text grammar into the texts of a state.

A query is answered as the real engine does: atom by atom, facts in the order of their objects' identifiers, different
variables for different objects (also different from those that the action names), so that lists come out in its order.
Its handling of subtypes is followed, too, odd as it is: an object that an action took as a parameter of a wider type is
not the object of the facts, and types that are reached in two ways are listed twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

from rl_agents.envs.alfworld.grammar import (
    Each,
    Field,
    FirstFilled,
    Grammar,
    Joined,
    Placeholder,
    QueryAtom,
    Reference,
    Symbol,
    Text,
    Value,
    ValueTree,
    fields,
    parse_expression,
    parse_query,
)
from rl_agents.envs.alfworld.world import Facts, Row, World
from rl_agents.errors import InputError, nearest

MAX_NESTING = 60

#: Symbols that write an enumeration, by the number of its items.
EMPTY, SEPARATOR, LAST_SEPARATOR = "list_empty", "list_separator", "list_last_separator"

#: Upper bound on the combinations of subtypes that one query atom may stand for.
MAX_COMBINATIONS = 10_000

#: An object by its number, and the type that it was met as.
Seen = tuple[int, str]

#: Objects by query variable.
Answer = Mapping[Placeholder, Seen]


def symbols_below(grammar: Grammar, start: Sequence[Symbol]) -> Iterator[Symbol | Value]:
    """Yield every symbol and expression that writing ``start`` can come to.

    Raises:
        InputError: a symbol without productions.
    """
    seen: set[str] = set()
    stack: list[Symbol | Value] = list(start)
    while stack:
        symbol = stack.pop()
        yield symbol
        if isinstance(symbol, Each):
            stack.append(symbol.what)
            if symbol.enumerated:
                stack += [Reference(EMPTY), Reference(SEPARATOR), Reference(LAST_SEPARATOR)]
        elif isinstance(symbol, Reference) and symbol.symbol not in seen:
            seen.add(symbol.symbol)
            if not grammar.productions.get(symbol.symbol):
                hint = nearest(symbol.symbol, grammar.productions)[:200]
                raise InputError(f"symbol '#{symbol.symbol}#' has no productions: {hint}")
            stack += [part for production in grammar.productions[symbol.symbol] for part in production.symbols]


def queries_below(grammar: Grammar, start: Sequence[Symbol]) -> Iterator[QueryAtom]:
    """Yield every query atom that writing ``start`` can ask."""
    for symbol in symbols_below(grammar, start):
        texts: Iterable[str] = ()
        if isinstance(symbol, Each):
            texts = [symbol.given or ""]
        elif isinstance(symbol, Reference):
            texts = [production.condition for production in grammar.productions[symbol.symbol]]
        for text in texts:
            if text:
                yield from parse_query(text)


def fields_below(grammar: Grammar, start: Sequence[Symbol]) -> Iterator[Field]:
    """Yield every field that writing ``start`` can show."""
    for symbol in symbols_below(grammar, start):
        if isinstance(symbol, Value):
            yield from fields(parse_expression(symbol.source))


class Renderer:
    """Writes the texts of one game."""

    def __init__(self, grammar: Grammar, world: World) -> None:
        self._productions = grammar.productions
        self._world = world
        self._places: dict[tuple[str, ...], dict[tuple[str, ...], list[int]]] = {}

    def render(self, symbols: Sequence[Symbol], facts: Facts, mapping: Answer) -> str:
        """Write ``symbols`` with the objects of ``mapping``.

        Raises:
            InputError: no production of a symbol applies, a variable has no value, or endless nesting.
        """
        parts: list[str] = []
        self._write(symbols, facts, mapping, parts, 0)
        return "".join(parts)

    def _write(self, symbols: Sequence[Symbol], facts: Facts, mapping: Answer, parts: list[str], depth: int) -> None:
        if depth > MAX_NESTING:
            raise InputError(f"the grammar nests texts deeper than {MAX_NESTING}")
        for symbol in symbols:
            if isinstance(symbol, Text):
                parts.append(symbol.text)
            elif isinstance(symbol, Reference):
                self._write(self._chosen(symbol.symbol, facts, mapping), facts, mapping, parts, depth + 1)
            else:
                self._write_each(symbol, facts, mapping, parts, depth + 1)

    def _chosen(self, name: str, facts: Facts, mapping: Answer) -> tuple[Symbol, ...]:
        for production in self._productions[name]:
            if not production.condition or self._any_answer(production.condition, facts, mapping):
                return production.symbols
        raise InputError(f"no production of symbol '#{name}#' applies")

    def _write_each(self, each: Each, facts: Facts, mapping: Answer, parts: list[str], depth: int) -> None:
        answers = list(self._answers(parse_query(each.given), facts, mapping)) if each.given else [mapping]
        if each.enumerated and not answers:
            self._write([Reference(EMPTY)], facts, mapping, parts, depth)
        for index, answer in enumerate(answers):
            if each.enumerated and index:
                separator = LAST_SEPARATOR if index == len(answers) - 1 else SEPARATOR
                self._write([Reference(separator)], facts, mapping, parts, depth)
            if isinstance(each.what, Value):
                parts.append(self._value(parse_expression(each.what.source), answer))
            else:
                self._write([each.what], facts, answer, parts, depth)

    def _value(self, tree: ValueTree, answer: Answer) -> str:
        match tree:
            case str():
                return tree
            case Joined(parts):
                return "".join(self._value(part, answer) for part in parts)
            case FirstFilled(parts):
                texts = [self._value(part, answer) for part in parts]
                return next((text for text in texts if text), texts[-1])
            case Field(variable, field):
                return self._field(variable, field, answer)

    def _field(self, variable: str, field: str, answer: Answer) -> str:
        if field in ("definite", "indefinite"):
            return "the" if field == "definite" else "a"
        # Of two variables of one name and different types, the later counts.
        numbers = [number for (name, _), (number, _) in answer.items() if name == variable]
        if not numbers:
            raise InputError(f"variable '{variable}' has no value in this text")
        names = {"name": self._world.names, "id": self._world.identifiers, "type": self._world.types}
        return names[field][numbers[-1]]

    def _any_answer(self, condition: str, facts: Facts, mapping: Answer) -> bool:
        return next(self._answers(parse_query(condition), facts, mapping), None) is not None

    def _answers(self, atoms: Sequence[QueryAtom], facts: Facts, mapping: Answer) -> Iterator[Answer]:
        if not atoms:
            yield mapping
            return
        types = self._world.types
        for row in self._rows(atoms[0], facts, mapping):
            answer = dict(mapping)
            used = set(mapping.values())
            for placeholder, number in zip(atoms[0].placeholders, row, strict=True):
                met = (number, types[number])
                known = answer.get(placeholder)
                if known is None:
                    if met in used:
                        break
                    answer[placeholder] = met
                    used.add(met)
                elif known != met:
                    break
            else:
                yield from self._answers(atoms[1:], facts, answer)

    def _rows(self, atom: QueryAtom, facts: Facts, mapping: Answer) -> list[Row]:
        """Return the facts of the atom's predicate and types that agree with ``mapping``, in order."""
        arity = len(atom.placeholders)
        known = [
            (p, mapping[placeholder][0]) for p, placeholder in enumerate(atom.placeholders) if placeholder in mapping
        ]
        relation = self._world.static.get(atom.predicate)
        if relation is not None:
            found = relation.index(tuple(p for p, _ in known)).get(tuple(n for _, n in known), ())
            rows = [row for row in found if len(row) == arity]
        else:
            present = self._world.rows(atom.predicate, facts)
            rows = [row for row in present if len(row) == arity and all(row[p] == n for p, n in known)]
        return self._ordered(rows, tuple(kind for _, kind in atom.placeholders))

    def _ordered(self, rows: list[Row], kinds: tuple[str, ...]) -> list[Row]:
        """Keep the rows of the types asked for: those of exactly these types first, then those of subtypes."""
        places = self._places.get(kinds)
        if places is None:
            places = self._places[kinds] = subtype_places(kinds, self._world.supertypes)
        types = self._world.types
        placed = [(place, row) for row in rows for place in places.get(tuple([types[n] for n in row]), ())]
        placed.sort()
        return [row for _, row in placed]


def subtype_places(
    kinds: tuple[str, ...], supertypes: Mapping[str, frozenset[str]]
) -> dict[tuple[str, ...], list[int]]:
    """Return when a breadth-first search through the subtypes of ``kinds`` meets each combination of types.

    The combinations next to ``kinds`` do not count as met before their turn, so that some are met twice.

    Raises:
        InputError: more than 10,000 combinations.
    """
    children = {kind: sorted(other for other in supertypes if kind in supertypes[other]) for kind in supertypes}

    def narrower(types: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for position, kind in enumerate(types):
            for child in children[kind]:
                yield (*types[:position], child, *types[position + 1 :])

    places: dict[tuple[str, ...], list[int]] = {kinds: [0]}
    queue = deque(narrower(kinds))
    queued: set[tuple[str, ...]] = set()
    for place in count(1):
        if not queue:
            break
        if place > MAX_COMBINATIONS:
            raise InputError(
                f"a query on {', '.join(kinds)} stands for more than {MAX_COMBINATIONS} combinations of types"
            )
        types = queue.popleft()
        places.setdefault(types, []).append(place)
        new = [other for other in narrower(types) if other not in queued]
        queued.update(new)
        queue.extend(dict.fromkeys(new))
    return places
