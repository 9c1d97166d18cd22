"""PDDL (the ADL part of PDDL 2.2 that ALFWorld uses): data classes, a reader, and disjunctive normal form.

Costs (``increase``, ``:functions``, ``:metric``) are skipped, because they change no state. Derived predicates,
durations and preferences are refused. Names are lower-cased, as planners do.

Disjunctive normal form: a formula holds if one of its cases does. A case is a conjunction: facts that must hold for
some values of its own variables, and tests on those values. A universal quantifier becomes a test that no
counterexample exists.

Source of the language: Edelkamp and Hoffmann, "PDDL2.2: The Language for the Classical Part of the 4th International
Planning Competition" (2004).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

from rl_agents.errors import InputError, nearest

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
class Literal:
    """A test: ``atom`` holds, or (not ``positive``) does not. All its variables already have values."""

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


#: The cases of a formula that always holds.
TRUE: tuple[Case, ...] = (Case(),)


@dataclass(frozen=True)
class Effect:
    """For every value of ``variables`` in a case of ``condition``: ``atom`` becomes true (``positive``) or false."""

    variables: tuple[Typed, ...]
    condition: tuple[Case, ...]
    atom: Atom
    positive: bool

    @property
    def happens_once(self) -> bool:
        """Whether it has neither variables nor a condition."""
        return not self.variables and self.condition == TRUE


@dataclass(frozen=True)
class Action:
    name: str
    parameters: tuple[Typed, ...]
    precondition: tuple[Case, ...]
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
        facts: true at the start.
        mentioned: objects that the initial state names, including those that only numeric assignments name.
        goal: its cases.
    """

    objects: dict[str, str]
    facts: tuple[Atom, ...]
    mentioned: frozenset[str]
    goal: tuple[Case, ...]


#: Upper bounds on the nesting of parentheses and on the cases of a formula.
MAX_DEPTH, MAX_CASES = 64, 256

_TOKEN = re.compile(r"[()]|\?[^\s()?]*|[^\s()?]+")


class Expression(list["str | Expression"]):
    """A parenthesised list and the line that it starts on (1-based)."""

    __slots__ = ("line",)

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def _fail(at: Expression, message: str) -> InputError:
    return InputError(f"line {at.line}: {message}")


def read_expression(text: str) -> Expression:
    """Read one parenthesised expression; ``;`` starts a comment."""
    root = Expression(1)
    stack = [root]
    number = 1
    for number, line in enumerate(text.split("\n"), start=1):
        code = line.partition(";")[0]
        if not code.isascii():
            raise InputError(f"line {number}: a character outside ASCII")
        for token in _TOKEN.findall(code.lower()):
            if token == "(":
                if len(stack) > MAX_DEPTH or (stack[-1] is root and root):
                    reason = f"parentheses nested deeper than {MAX_DEPTH}" if len(stack) > 1 else "text after the end"
                    raise InputError(f"line {number}: {reason}")
                inner = Expression(number)
                stack[-1].append(inner)
                stack.append(inner)
            elif len(stack) == 1:
                raise InputError(f"line {number}: '{token[:40]}' outside the definition")
            elif token == ")":
                stack.pop()
            else:
                stack[-1].append(token)
    if len(stack) > 1 or not root:
        raise InputError(f"line {number}: the text ends before the definition does ({len(stack) - 1} parentheses open)")
    first = root[0]
    assert isinstance(first, Expression)
    return first


class _Scope:
    """The names that a formula may have; ``objects`` is None in a domain, which may name what a problem lacks."""

    def __init__(self, arities: dict[str, int], types: Iterable[str], objects: dict[str, str] | None = None) -> None:
        self.arities = arities
        self.types = frozenset(types)
        self.objects = objects
        self.fresh = count(1)

    def atom(self, at: Expression, names: Mapping[str, str]) -> Atom:
        predicate, *arguments = _words(at)
        if predicate not in self.arities:
            raise _fail(at, f"unknown predicate '{predicate}': {nearest(predicate, self.arities)}")
        if len(arguments) != self.arities[predicate]:
            raise _fail(at, f"predicate '{predicate}' takes {self.arities[predicate]} arguments, not {len(arguments)}")
        for argument in arguments:
            if argument.startswith("?"):
                if argument not in names:
                    raise _fail(at, f"variable '{argument}' is not declared")
            elif self.objects is not None and argument not in self.objects:
                raise _fail(at, f"object '{argument}' is not declared: {nearest(argument, self.objects)[:200]}")
        return Atom(predicate, tuple(names.get(argument, argument) for argument in arguments))


def _words(at: Expression) -> list[str]:
    words = [word for word in at if isinstance(word, str)]
    if len(words) != len(at) or not words:
        raise _fail(at, "a list of names is expected")
    return words


def _list(at: Expression, index: int, what: str) -> Expression:
    if index >= len(at) or not isinstance(part := at[index], Expression):
        raise _fail(at, f"{what} is missing")
    return part


def _head(at: Expression) -> str:
    if not at or not isinstance(head := at[0], str):
        raise _fail(at, "a name is expected after '('")
    return head


def _typed_list(at: Expression, items: Sequence[str | Expression]) -> tuple[Typed, ...]:
    """``a b - type c``: names without a type are objects."""
    result: list[Typed] = []
    pending: list[str] = []
    position = 0
    while position < len(items):
        item = items[position]
        if isinstance(item, Expression):
            raise _fail(item, "unsupported: a list inside a typed list (such as 'either')")
        if item == "-":
            if position + 1 >= len(items) or not isinstance(kind := items[position + 1], str):
                raise _fail(at, "a type is missing after '-'")
            result += [Typed(name, kind) for name in pending]
            pending, position = [], position + 2
        else:
            pending.append(item)
            position += 1
    return tuple(result + [Typed(name, ROOT_TYPE) for name in pending])


def _variables(at: Expression, declared: Expression) -> tuple[Typed, ...]:
    variables = _typed_list(declared, declared)
    for variable in variables:
        if not variable.name.startswith("?"):
            raise _fail(at, f"'{variable.name}' is not a variable (they start with '?')")
    return variables


def _names(variables: Iterable[Typed]) -> dict[str, str]:
    return {variable.name: variable.name for variable in variables}


def _cases(at: Expression, scope: _Scope, names: Mapping[str, str], positive: bool = True) -> tuple[Case, ...]:
    """Return the cases in which a formula holds or, not ``positive``, does not hold; none when there can be none.

    Args:
        names: the variables that it may have, and their names in the cases.
    """
    head = _head(at) if at else "and"
    if head in ("forall", "exists"):
        # An undeclared type has no objects. ALFWorld's own domain has one: "location," with its comma.
        bound, part = _variables(at, _list(at, 1, "the variable list")), _list(at, 2, "the formula")
        own = tuple(Typed(f"{variable.name}#{next(scope.fresh)}", variable.type) for variable in bound)
        names = {**names, **{old.name: new.name for old, new in zip(bound, own, strict=True)}}
        exists = (head == "exists") == positive
        inner = tuple(Case(own).joined(case) for case in _cases(part, scope, names, positive == exists))
        return inner if exists else (Case(tests=(NoneOf(inner),)),)
    if head not in ("and", "or", "not", "imply"):
        atom = scope.atom(at, names)
        is_fact = positive and atom.predicate != EQUALS
        return (Case(facts=(atom,)) if is_fact else Case(tests=(Literal(atom, positive),)),)
    denied = 1 if head in ("not", "imply") else None
    parts = [_cases(_list(at, i, "a formula"), scope, names, positive != (i == denied)) for i in range(1, len(at))]
    if len(parts) != {"not": 1, "imply": 2}.get(head, len(parts)):
        raise _fail(at, f"'{head}' has {len(parts)} parts")
    return _every(at, parts) if (head == "and") == positive else tuple(case for part in parts for case in part)


def _every(at: Expression, parts: Iterable[Sequence[Case]]) -> tuple[Case, ...]:
    """Return the cases in which all parts hold."""
    result = TRUE
    for options in parts:
        if len(result) * len(options) > MAX_CASES:
            raise _fail(at, f"a condition with more than {MAX_CASES} alternatives")
        result = tuple(left.joined(right) for left in result for right in options)
    return result


def _effects(at: Expression, scope: _Scope, names: Mapping[str, str]) -> list[Effect]:
    if not at or _head(at) == "increase":
        return []
    head = _head(at)
    if head == "and":
        return [effect for i in range(1, len(at)) for effect in _effects(_list(at, i, "an effect"), scope, names)]
    if head == "forall":
        bound = _variables(at, _list(at, 1, "the variable list"))
        inner = _effects(_list(at, 2, "the effect"), scope, {**names, **_names(bound)})
        return [Effect(bound + e.variables, e.condition, e.atom, e.positive) for e in inner]
    if head == "when":
        condition = _cases(_list(at, 1, "the condition"), scope, names)
        inner = _effects(_list(at, 2, "the effect"), scope, names)
        return [Effect(e.variables, _every(at, (condition, e.condition)), e.atom, e.positive) for e in inner]
    if head in ("assign", "decrease", "scale-up", "scale-down", "or", "exists", "imply"):
        raise _fail(at, f"unsupported effect '{head}'")
    literal = _list(at, 1, "the fact") if head == "not" else at
    atom = scope.atom(literal, names)
    if atom.predicate == EQUALS:
        raise _fail(at, "'=' cannot be an effect")
    return [Effect((), TRUE, atom, head != "not")]


def _action(at: Expression, scope: _Scope) -> Action:
    name = at[1] if len(at) > 1 else None
    if not isinstance(name, str):
        raise _fail(at, "an action without a name")
    fields: dict[str, Expression] = {}
    for index in range(2, len(at), 2):
        key = at[index]
        if not isinstance(key, str) or key not in (":parameters", ":precondition", ":effect"):
            raise _fail(at, f"action {name}: ':parameters', ':precondition' or ':effect' is expected")
        fields[key] = _list(at, index + 1, f"action {name}: what belongs to '{key}'")
    empty = Expression(at.line)
    parameters = _variables(at, fields.get(":parameters", empty))
    for parameter in parameters:
        if parameter.type not in scope.types:
            raise _fail(at, f"action {name}: unknown type '{parameter.type}': {nearest(parameter.type, scope.types)}")
    names = _names(parameters)
    precondition = _cases(fields.get(":precondition", empty), scope, names)
    return Action(name, parameters, precondition, tuple(_effects(fields.get(":effect", empty), scope, names)))


def _supertypes(declared: Iterable[Typed]) -> dict[str, frozenset[str]]:
    parents: dict[str, set[str]] = {ROOT_TYPE: set()}
    for entry in declared:
        parents.setdefault(entry.name, set()).add(entry.type)
        parents.setdefault(entry.type, {ROOT_TYPE})
    result = {}
    for name in parents:
        found: set[str] = set()
        queue = [name]
        while queue:
            new = parents[queue.pop()] - found
            found |= new
            queue += new
        result[name] = frozenset(found - {name})
    return result


def _definition(text: str, kind: str) -> tuple[Expression, str, list[Expression]]:
    """Split ``(define (kind name) section ...)``."""
    root = read_expression(text)
    head = root[1] if len(root) > 1 else None
    if _head(root) != "define" or not isinstance(head, Expression) or len(head) != 2 or head[0] != kind:
        raise _fail(root, f"'(define ({kind} NAME) ...' is expected")
    return root, _words(head)[1], [_list(root, i, "a section") for i in range(2, len(root))]


@lru_cache(maxsize=16)
def parse_domain(text: str) -> Domain:
    """Read a PDDL domain. All games of a release have one domain text, so the result is kept and shared."""
    _, name, sections = _definition(text, "domain")
    types: tuple[Typed, ...] = ()
    constants: tuple[Typed, ...] = ()
    arities: dict[str, int] = {EQUALS: 2}
    bodies = []
    for section in sections:
        match _head(section):
            case ":types":
                types += _typed_list(section, section[1:])
            case ":constants":
                constants += _typed_list(section, section[1:])
            case ":predicates":
                for index in range(1, len(section)):
                    predicate = _list(section, index, "a predicate")
                    arities[_head(predicate)] = len(_typed_list(predicate, predicate[1:]))
            case ":action":
                bodies.append(section)
            case ":requirements" | ":functions":
                pass
            case other:
                raise _fail(section, f"unsupported section '{other}'")
    supertypes = _supertypes(types)
    scope = _Scope(arities, supertypes)
    actions = [_action(body, scope) for body in bodies]
    return Domain(name, supertypes, arities, constants, tuple(action for action in actions if action.effects))


def parse_problem(text: str, domain: Domain) -> Problem:
    root, _, sections = _definition(text, "problem")
    by_name = {_head(section): section for section in sections}
    for key, section in by_name.items():
        if key not in (":domain", ":requirements", ":objects", ":init", ":goal", ":metric"):
            raise _fail(section, f"unsupported section '{key}'")
    for key in (":domain", ":init", ":goal"):
        if key not in by_name:
            raise _fail(root, f"section '{key}' is missing")
    if list(by_name[":domain"]) != [":domain", domain.name]:
        raise _fail(by_name[":domain"], f"the problem is not of domain '{domain.name}'")
    objects = _objects(by_name.get(":objects", Expression(root.line)), domain)
    scope = _Scope(domain.arities, domain.supertypes, objects)
    facts, mentioned = _initial_facts(by_name[":init"], scope)
    goal = _cases(_list(by_name[":goal"], 1, "the goal"), scope, {})
    return Problem(objects, facts, mentioned, goal)


def _objects(section: Expression, domain: Domain) -> dict[str, str]:
    objects: dict[str, str] = {}
    for entry in domain.constants + _typed_list(section, section[1:]):
        if entry.name in objects:
            raise _fail(section, f"object '{entry.name}' is declared twice")
        if entry.type not in domain.supertypes:
            hint = nearest(entry.type, domain.supertypes)
            raise _fail(section, f"object '{entry.name}' is of unknown type '{entry.type}': {hint}")
        objects[entry.name] = entry.type
    return objects


def _initial_facts(section: Expression, scope: _Scope) -> tuple[tuple[Atom, ...], frozenset[str]]:
    facts: dict[Atom, None] = {}
    mentioned: set[str] = set()
    for index in range(1, len(section)):
        entry = _list(section, index, "a fact")
        head = _head(entry)
        if head == "not":
            continue
        if head == EQUALS:
            if isinstance(function := entry[1] if len(entry) > 1 else None, Expression):
                mentioned.update(_words(function)[1:])
            continue
        atom = scope.atom(entry, {})
        facts[atom] = None
        mentioned.update(atom.arguments)
    return tuple(facts), frozenset(mentioned)
