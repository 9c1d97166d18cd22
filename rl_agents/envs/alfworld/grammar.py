"""The text grammar of an ALFWorld game (``.twl2``): its reader, and the writer of a state's texts.

A grammar file has blocks ``grammar :: JSON;`` and ``action NAME { template :: "..."; feedback :: "..."; grammar ::
JSON; }``, the JSON between tripled quotation marks. It maps a symbol to its productions, ``{"condition": query, "rhs":
text}``. The first production whose condition holds is used. In a text, ``#symbol#`` stands for a symbol, ``{expression
| query}`` for the expression once per answer of the query, and ``[{... | ...}]`` for the same as an enumeration. A
query is a conjunction such as ``openable(r:receptacle) & not_opened(r:receptacle)``.

Odd texts are read by the rules of the real engine's parser: reading stops, without an error, at the first place that
fits no rule (a stray ``;``, ``<`` or bracket); quotation marks are dropped; so are white space and ``//`` comments at
the start, and tabulators after a symbol.

Queries are answered as the real engine does: atom by atom, facts in the order of their objects' identifiers, different
variables for different objects (also different from those that the action names), so that lists have its order. An
object that an action took as a parameter of a wider type is, as there, not the object of the facts.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent

from rl_agents.envs.alfworld.world import NEGATED, Facts, Objects, World
from rl_agents.errors import InputError, nearest

MAX_EXPRESSION, MAX_NESTING = 200, 60
#: Symbols that write an enumeration, by the number of its items.
EMPTY, SEPARATOR, LAST_SEPARATOR = "list_empty", "list_separator", "list_last_separator"


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Reference:
    """``#symbol#``."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Value:
    """An unparsed expression over the variables of a text: ``r.name or r.id``."""

    source: str


@dataclass(frozen=True, slots=True)
class Each:
    """``{what | given}``; with brackets around, ``enumerated`` with separators. Without ``given``: once."""

    what: Reference | Value
    given: str | None
    enumerated: bool


Symbol = Text | Reference | Each

#: A variable of a query: its name and its type. Both belong to its identity.
Placeholder = tuple[str, str]
#: An object by its number, and the type by which it was found.
Seen = tuple[int, str]
#: Objects by query variable.
Answer = Mapping[Placeholder, Seen]


@dataclass(frozen=True, slots=True)
class QueryAtom:
    predicate: str
    placeholders: tuple[Placeholder, ...]


@dataclass(frozen=True, slots=True)
class Production:
    condition: str
    symbols: tuple[Symbol, ...]


@dataclass(frozen=True, slots=True)
class ActionText:
    """The command of an action (``go to {r}``) and the text after it."""

    template: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]


@dataclass(frozen=True)
class Grammar:
    """``actions`` by lower-case name; ``productions`` by symbol, in their order."""

    actions: dict[str, ActionText]
    productions: dict[str, tuple[Production, ...]]


# --- Texts ---

_CHARACTERS = r'[^;|"<>\[\]#{}]*'
_REFERENCE = r"\#\t*(?P<{0}>[\w()/!<>\-\s,.]+)\t*\#"
# Atomic groups: like the real parser, a bracket whose inside was read one way is not read again in another.
_EACH = (
    r"\{{\t*(?>" + _REFERENCE.format("{0}_symbol") + r"|(?P<{0}_value>[^|\[\]{{}}\n<>]+))"
    r"(?>\t*\s*\|\s*+(?P<{0}_given>[^;|{{}}\n\[\]\#]+))?\t*\}}"
)
_SYMBOL = re.compile(
    rf"(?P<list>\[\t*{_EACH.format('item')}\t*\])|(?P<each>{_EACH.format('each')})|{_REFERENCE.format('symbol')}"
    rf'|"(?P<quoted>{_CHARACTERS})\t*"|(?P<plain>{_CHARACTERS})'
)
_SKIPPED_AT_START = re.compile(r"(?:(?:^(?://.*|\s+)\n?)|\t+)*", re.MULTILINE)


@lru_cache(maxsize=4096)
def parse_text(text: str) -> tuple[Symbol, ...]:
    """Read a text of the grammar. Texts repeat from game to game, so the result is kept and shared."""
    symbols: list[Symbol] = []
    position = 0
    while True:
        skipped = _SKIPPED_AT_START.match(text, position)
        start = skipped.end() if skipped else position
        match = _SYMBOL.match(text, start)
        assert match is not None, "the last alternative matches the empty text"
        if match.end() == position:
            return tuple(symbols)
        symbols.append(_symbol(match))
        position = match.end()


def _symbol(match: re.Match[str]) -> Symbol:
    for group, kind in (("list", "item"), ("each", "each")):
        if match[group] is not None:
            symbol, value = match[f"{kind}_symbol"], match[f"{kind}_value"]
            what = Reference(symbol) if symbol is not None else Value(value)
            return Each(what, match[f"{kind}_given"], enumerated=group == "list")
    if match["symbol"] is not None:
        return Reference(match["symbol"])
    return Text(match["quoted"] if match["quoted"] is not None else match["plain"])


# --- Queries ---

_QUERY_ATOM = re.compile(r"\s*(!?)([\w/]+)\s*\(([^()]*)\)\s*")
_PLACEHOLDER = re.compile(r"\s*([\w']+)\s*(?::\s*([\w/-]+)\s*)?")


@lru_cache(maxsize=4096)
def parse_query(text: str) -> tuple[QueryAtom, ...]:
    """Read a conjunction. ``!p(...)`` is ``not_p(...)``; a variable without a type has its name as type."""
    return tuple(_query_atom(part, text) for part in text.split("&"))


def _query_atom(text: str, query: str) -> QueryAtom:
    match = _QUERY_ATOM.fullmatch(text)
    if not match:
        raise InputError(f"not a query: '{query}'")
    placeholders = []
    for argument in match[3].split(",") if match[3].strip() else ():
        found = _PLACEHOLDER.fullmatch(argument)
        if not found:
            raise InputError(f"not a variable of a query: '{argument}' in '{query}'")
        placeholders.append((found[1], found[2] or found[1]))
    return QueryAtom((NEGATED if match[1] else "") + match[2], tuple(placeholders))


# --- Expressions ---

FIELDS = ("name", "id", "type", "definite", "indefinite")


@lru_cache(maxsize=4096)
def parse_expression(source: str) -> ast.expr:
    """Read an expression and check it: names, their fields, quoted texts, ``+`` and ``or``. It is never run as code."""
    try:
        tree = ast.parse(source.strip(), mode="eval").body if len(source) <= MAX_EXPRESSION else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not _is_value(tree):
        raise InputError(f"unsupported expression '{source.strip()[:60]}'")
    return tree


def _is_value(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=str()) | ast.Name():
            return True
        case ast.Attribute(value=ast.Name(), attr=field):
            return field in FIELDS
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _is_value(left) and _is_value(right)
        case ast.BoolOp(op=ast.Or(), values=values):
            return all(map(_is_value, values))
    return False


# --- Files ---

_BLANK = re.compile(r"(?:\s+|#[^\n]*)*")
_GRAMMAR_HEAD = re.compile(r"grammar\s*::\s*")
_ACTION_HEAD = re.compile(r"action\s+([\w/-]+)\s*\{")
_PART_HEAD = re.compile(r"(template|feedback|pddl|grammar)\s*::\s*")
_BLOCK = re.compile(r'"""(.*?)"""\s*;', re.DOTALL)
_STRING = re.compile(r'"([^"]*)"\s*;')


class _Reader:
    """A position in the grammar file."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def skip(self) -> None:
        match = _BLANK.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self.skip()
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
        return match

    def need(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        match = self.take(pattern)
        if not match:
            raise InputError(f"line {self.line()}: {what} is expected")
        return match

    def line(self) -> int:
        return self.text.count("\n", 0, self.position) + 1

    def block(self) -> str:
        return self.need(_BLOCK, 'a block """...""";')[1]


@lru_cache(maxsize=1024)
def parse_grammar(text: str) -> Grammar:
    """Read a grammar file. Of two entries for one symbol or action, the later counts."""
    reader = _Reader(text)
    actions: dict[str, ActionText] = {}
    productions: dict[str, tuple[Production, ...]] = {}
    while True:
        reader.skip()
        if reader.position == len(text):
            return Grammar(actions, productions)
        if reader.take(_GRAMMAR_HEAD):
            productions |= _productions(reader, comments=False)
        else:
            name = reader.need(_ACTION_HEAD, "'grammar ::' or 'action NAME {'")[1]
            actions[name.lower()] = _action_text(reader, name, productions)


def _action_text(reader: _Reader, name: str, productions: dict[str, tuple[Production, ...]]) -> ActionText:
    strings: dict[str, str] = {}
    line = reader.line()
    while not reader.take(re.compile(r"\}")):
        part = reader.need(_PART_HEAD, f"action {name}: 'template', 'feedback', 'grammar' or '}}'")[1]
        if part == "grammar":
            productions |= _productions(reader, comments=True)
        elif part == "pddl":
            reader.block()
        else:
            strings[part] = reader.need(_STRING, f'action {name}: a text "...";')[1]
    for part in ("template", "feedback"):
        if part not in strings:
            raise InputError(f"line {line}: action {name} has no {part}")
    return ActionText(parse_text(strings["template"]), parse_text(strings["feedback"]))


def _productions(reader: _Reader, comments: bool) -> dict[str, tuple[Production, ...]]:
    """Read a JSON block; ``comments``: lines that start with '#' are skipped."""
    reader.skip()
    line = reader.line()
    block = dedent(reader.block())
    if comments:
        block = "\n".join("" if part.lstrip().startswith("#") else part for part in block.split("\n"))
    try:
        data = json.loads(block)
    except json.JSONDecodeError as error:
        raise InputError(f"line {line + error.lineno - 1}: the grammar is not valid JSON: {error.msg}") from None
    except RecursionError:
        raise InputError(f"line {line}: the grammar is nested too deeply") from None
    if not isinstance(data, dict):
        raise InputError(f"line {line}: the grammar must be an object of symbols")
    result = {}
    for symbol, entries in data.items():
        if not isinstance(entries, list) or not all(_is_production(entry) for entry in entries):
            raise InputError(
                f"line {line}: symbol '{symbol}' must be a list of objects with 'rhs' and 'condition' texts"
            )
        result[symbol] = tuple(Production(e.get("condition", ""), parse_text(e["rhs"])) for e in entries)
    return result


def _is_production(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("rhs"), str) and isinstance(entry.get("condition", ""), str)


def symbols_below(grammar: Grammar, start: Sequence[Symbol]) -> Iterator[Symbol | Value]:
    """Yield every symbol and expression that writing ``start`` can reach."""
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


def variables_below(grammar: Grammar, start: Sequence[Symbol]) -> set[str]:
    """Return every variable that writing ``start`` can show."""
    values = [symbol for symbol in symbols_below(grammar, start) if isinstance(symbol, Value)]
    nodes = (node for value in values for node in ast.walk(parse_expression(value.source)))
    return {node.id for node in nodes if isinstance(node, ast.Name)}


class Renderer:
    """Writes the texts of one game."""

    def __init__(self, grammar: Grammar, world: World) -> None:
        self._productions = grammar.productions
        self._world = world

    def render(self, symbols: Sequence[Symbol], facts: Facts, mapping: Answer) -> str:
        """Write ``symbols`` with the objects of ``mapping``."""
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
            condition = production.condition
            if not condition or any(True for _ in self._answers(parse_query(condition), facts, mapping)):
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

    def _value(self, tree: ast.expr, answer: Answer) -> str:
        """Write an expression. ``a or b`` is the first part that is not empty, else the last; ``r`` is ``r.name``."""
        match tree:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id=variable):
                return self._field(variable, "name", answer)
            case ast.Attribute(value=ast.Name(id=variable), attr=field):
                return self._field(variable, field, answer)
            case ast.BinOp(left=left, right=right):
                return self._value(left, answer) + self._value(right, answer)
            case ast.BoolOp(values=values):
                texts = [self._value(value, answer) for value in values]
                return next((text for text in texts if text), texts[-1])
        raise AssertionError(tree)  # `parse_expression` has checked it

    def _field(self, variable: str, field: str, answer: Answer) -> str:
        if field in ("definite", "indefinite"):
            return "the" if field == "definite" else "a"
        # Of two variables with one name and different types, the later one is used.
        numbers = [number for (name, _), (number, _) in answer.items() if name == variable]
        if not numbers:
            raise InputError(f"variable '{variable}' has no value in this text")
        names = {"name": self._world.names, "id": self._world.identifiers, "type": self._world.types}
        return names[field][numbers[-1]]

    def _answers(self, atoms: Sequence[QueryAtom], facts: Facts, mapping: Answer) -> Iterator[Answer]:
        if not atoms:
            yield mapping
            return
        for row in self._rows(atoms[0], facts, mapping):
            answer = dict(mapping)
            used = set(mapping.values())
            for placeholder, number in zip(atoms[0].placeholders, row, strict=True):
                met = (number, self._world.types[number])
                if placeholder not in answer and met not in used:
                    answer[placeholder] = met
                    used.add(met)
                elif answer.get(placeholder) != met:
                    break
            else:
                yield from self._answers(atoms[1:], facts, answer)

    def _rows(self, atom: QueryAtom, facts: Facts, mapping: Answer) -> list[Objects]:
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

    def _ordered(self, rows: list[Objects], kinds: tuple[str, ...]) -> list[Objects]:
        """Return the rows of the given types: those of exactly these types first, then those of subtypes by type."""
        types, supertypes = self._world.types, self._world.supertypes
        placed = []
        for row in rows:
            own = tuple([types[number] for number in row])
            if all(kind == wanted or wanted in supertypes[kind] for kind, wanted in zip(own, kinds, strict=True)):
                placed.append((own != kinds, own, row))
        return [row for _, _, row in sorted(placed)]
