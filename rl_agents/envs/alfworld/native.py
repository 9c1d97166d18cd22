"""The native ALFWorld engine: runs a game in microseconds, without a planner.

All episodes of a game share a `NativeGame`, which never changes. A `State` is a small immutable value. Observations,
admissible commands and ``won`` equal those of the real TextWorld engine behind ALFWorld's name demangler
(``tests/envs/alfworld/differential.py``), except in cases that do not occur with ALFWorld's own domain and grammar:

- A goal that no sequence of actions can reach: TextWorld fails to load such a game, this engine runs it.
- An effect under a condition: TextWorld's texts assume it even if the condition was false. Here texts show the facts.
- ``not_p`` in a query: TextWorld has it once an effect made ``p`` false, except if ``p`` could never have been true.
- Subtypes of subtypes in a query: TextWorld lists their objects twice.
- Several actions with the same command: TextWorld takes the first of its planner, this engine the first of the domain.
- An action whose effects can never change anything because of conditions on them: TextWorld excludes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rl_agents.envs.alfworld.grammar import (
    ActionText,
    Answer,
    Grammar,
    Placeholder,
    Renderer,
    Symbol,
    parse_grammar,
    parse_text,
    queries_below,
    variables_below,
)
from rl_agents.envs.alfworld.pddl import Action, Atom, Case, Effect, Literal, parse_domain, parse_problem
from rl_agents.envs.alfworld.world import (
    NEGATED,
    Binding,
    Facts,
    Matcher,
    Objects,
    RowGetter,
    World,
    build_world,
    compile_case,
    compile_terms,
    value_getter,
)
from rl_agents.errors import InputError, nearest

Slots = tuple[int | None, int | None]


@dataclass(frozen=True)
class GameFile:
    """The texts of one game, unparsed: PDDL domain, text grammar and PDDL problem."""

    path: Path
    domain: str
    grammar: str
    problem: str


class Instance(NamedTuple):
    """An action of the game by its number, and its objects."""

    action: int
    arguments: Objects


@dataclass(frozen=True, slots=True)
class Change:
    """One effect on a predicate that a condition, the goal or a text reads.

    Attributes:
        slots: of the predicate and of its ``not_`` predicate; None: it is not read.
        row: binding of an occasion -> fact.
        occasions: cases of the effect's condition; None: it has none, and happens once.
    """

    slots: Slots
    positive: bool
    row: RowGetter
    occasions: tuple[Matcher, ...] | None


@dataclass(frozen=True, slots=True)
class Way:
    """One case of an action's precondition.

    Attributes:
        idle: whether the precondition already states all effects of a binding. Then the action would change nothing
            and is not available. None: that cannot happen.
    """

    matcher: Matcher
    idle: Callable[[Binding], bool] | None


@dataclass(frozen=True, slots=True)
class CompiledAction:
    """
    Attributes:
        placeholders: the parameters as the text grammar's queries name them.
        shown: positions of the parameters on which the command depends; None: it also depends on the state.
    """

    name: str
    placeholders: tuple[Placeholder, ...]
    ways: tuple[Way, ...]
    changes: tuple[Change, ...]
    template: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]
    shown: tuple[int, ...] | None
    _commands: dict[Objects, str] = field(default_factory=dict)

    def applicable(self, facts: Facts) -> Iterator[Objects]:
        """Yield the objects of the available instances; the same objects twice if two cases allow them."""
        width = len(self.placeholders)
        for way in self.ways:
            for binding in way.matcher.matches(facts):
                if way.idle is None or not way.idle(binding):
                    yield tuple(binding[:width])

    def command(self, renderer: Renderer, facts: Facts, arguments: Objects) -> str:
        if self.shown is None:
            return renderer.render(self.template, facts, self.mapping(arguments))
        key = tuple([arguments[position] for position in self.shown])
        text = self._commands.get(key)
        if text is None:
            text = self._commands[key] = renderer.render(self.template, facts, self.mapping(arguments))
        return text

    def mapping(self, arguments: Objects) -> Answer:
        """Return the objects of the parameters in queries, as of the parameters' types."""
        return {
            placeholder: (number, placeholder[1])
            for placeholder, number in zip(self.placeholders, arguments, strict=True)
        }

    def applied(self, facts: Facts, arguments: Objects) -> Facts:
        """Return the facts after the action. Conditions read the facts before it; adding wins over deleting."""
        made: dict[Slots, set[Objects]] = {}
        unmade: dict[Slots, set[Objects]] = {}
        for change in self.changes:
            rows = made if change.positive else unmade
            rows.setdefault(change.slots, set()).update(_rows(change, facts, arguments))
        result = list(facts)
        for slots in made.keys() | unmade.keys():
            gains = made.get(slots, set())
            losses = unmade.get(slots, set()) - gains
            for slot, new, old in ((slots[0], gains, losses), (slots[1], losses, gains)):
                if slot is not None and not (new <= facts[slot] and old.isdisjoint(facts[slot])):
                    result[slot] = (facts[slot] - old) | new
        return tuple(result)


def _rows(change: Change, facts: Facts, arguments: Objects) -> Iterator[Objects]:
    if change.occasions is None:
        yield change.row(arguments)
        return
    for matcher in change.occasions:
        for binding in matcher.matches(facts, arguments):
            yield change.row(binding)


def compile_action(action: Action, text: ActionText, grammar: Grammar, world: World, facts: Facts) -> CompiledAction:
    """Compile ``action`` for a game that starts with ``facts``."""
    placeholders = tuple((parameter.name.strip("?"), parameter.type) for parameter in action.parameters)
    ways = []
    for case in action.precondition:
        matcher = compile_case(case, world, facts, free=action.parameters)
        if matcher is not None:
            ways.append(Way(matcher, _idle(action, case, world)))
    changes = [_compile_change(action, effect, world, facts) for effect in action.effects]
    return CompiledAction(
        name=action.name,
        placeholders=placeholders,
        ways=tuple(ways),
        changes=tuple(change for change in changes if change is not None),
        template=text.template,
        feedback=text.feedback,
        shown=_shown(placeholders, text, grammar, world),
    )


def _shown(
    placeholders: tuple[Placeholder, ...], text: ActionText, grammar: Grammar, world: World
) -> tuple[int, ...] | None:
    atoms = list(queries_below(grammar, text.template))
    if any(atom.predicate in world.slots for atom in atoms):
        return None
    named = {name for atom in atoms for name, _ in atom.placeholders} | variables_below(grammar, text.template)
    return tuple(position for position, (name, _) in enumerate(placeholders) if name in named)


def _compile_change(action: Action, effect: Effect, world: World, facts: Facts) -> Change | None:
    slots = (world.slots.get(effect.atom.predicate), world.slots.get(NEGATED + effect.atom.predicate))
    if slots == (None, None):
        return None
    known = [parameter.name for parameter in action.parameters]
    variables = [*known, *(variable.name for variable in effect.variables)]
    terms = compile_terms(effect.atom, {name: number for number, name in enumerate(variables)}, world)
    if terms is None:
        raise InputError(f"action {action.name} changes '{effect.atom}', an object that the problem does not declare")
    occasions = None
    if not effect.happens_once:
        compiled = [compile_case(case, world, facts, known, effect.variables) for case in effect.condition]
        occasions = tuple(matcher for matcher in compiled if matcher is not None)
    return Change(slots, effect.positive, value_getter(terms), occasions)


def _idle(action: Action, case: Case, world: World) -> Callable[[Binding], bool] | None:
    """Return the test of `Way.idle` for one case of the precondition."""
    names = [variable.name for variable in (*action.parameters, *case.variables)]
    numbering = {name: number for number, name in enumerate(names)}
    denied = [test.atom for test in case.tests if isinstance(test, Literal) and not test.positive]
    added = [effect.atom for effect in action.effects if effect.positive and effect.happens_once]
    effects = []
    for effect in action.effects:
        # Deleting what another effect adds deletes nothing.
        stated = case.facts if effect.positive else [*denied, *(added if effect.happens_once else [])]
        same = [pair for atom in stated if (pair := _unified(effect.atom, atom, numbering, world)) is not None]
        if effect.variables or not same:
            return None
        effects.append(same)
    return lambda binding: all(any(one(binding) == other(binding) for one, other in same) for same in effects)


def _unified(left: Atom, right: Atom, numbering: dict[str, int], world: World) -> tuple[RowGetter, RowGetter] | None:
    """Return the two rows that must be equal for the atoms to be equal; None if they never are."""
    terms = [compile_terms(atom, numbering, world) for atom in (left, right)]
    if left.predicate != right.predicate or terms[0] is None or terms[1] is None:
        return None
    return value_getter(terms[0]), value_getter(terms[1])


NOTHING_HAPPENS = "Nothing happens."
INTRO = parse_text("#intro#")

#: States whose commands a game keeps, because the episodes of a group visit the same states.
KEPT_STATES = 32


@dataclass(frozen=True, slots=True)
class State:
    """The facts at a moment of a game. Equal states have equal texts. Hashable, and meaningful with its game only."""

    facts: Facts


@dataclass(frozen=True, slots=True)
class StepResult:
    """The state after a command, the player's text, and whether the goal holds; then the reward is 1, else 0."""

    state: State
    feedback: str
    won: bool


@dataclass(eq=False)
class NativeGame:
    """A compiled game, made with `compile`."""

    file: GameFile
    _start: State
    _actions: tuple[CompiledAction, ...]
    _goal: tuple[Matcher, ...]
    _renderer: Renderer
    _commands: dict[State, dict[str, Instance]] = field(default_factory=dict)
    _intro: str | None = None

    @staticmethod
    def compile(file: GameFile) -> NativeGame:
        with _located(file, "pddl_domain"):
            domain = parse_domain(file.domain)
        with _located(file, "grammar"):
            grammar = parse_grammar(file.grammar)
            read = _read_by_texts(file.domain, file.grammar)
        with _located(file, "pddl_problem"):
            problem = parse_problem(file.problem, domain)
        with _located(file, "pddl_domain"):
            read |= _read_by_conditions(file.domain) | {
                predicate for case in problem.goal for predicate in _predicates(case)
            }
            world, facts = build_world(domain, problem, read)
            actions = [compile_action(a, grammar.actions[a.name], grammar, world, facts) for a in domain.actions]
        matchers = [compile_case(case, world, facts) for case in problem.goal]
        return NativeGame(
            file, State(facts), tuple(actions), tuple(m for m in matchers if m is not None), Renderer(grammar, world)
        )

    def __reduce__(self) -> tuple[Callable[[GameFile], NativeGame], tuple[GameFile]]:
        return NativeGame.compile, (self.file,)

    def start(self) -> State:
        return self._start

    def intro(self, state: State) -> str:
        """Return the first observation of a game that starts in ``state``: the room and the task."""
        if state != self._start:
            return self._render(INTRO, state.facts, {})
        if self._intro is None:
            self._intro = self._render(INTRO, state.facts, {})
        return self._intro

    def step(self, state: State, command: str) -> StepResult:
        """Run ``command``, which must equal an admissible one, except for white space around it.

        Anything else changes nothing and gets the reply ``Nothing happens.``
        """
        instance = self._commands_of(state).get(command.strip())
        if instance is None:
            return StepResult(state, NOTHING_HAPPENS, self.won(state))
        action = self._actions[instance.action]
        after = State(action.applied(state.facts, instance.arguments))
        feedback = self._render(action.feedback, after.facts, action.mapping(instance.arguments))
        return StepResult(after, feedback, self.won(after))

    def admissible(self, state: State) -> tuple[str, ...]:
        return tuple(self._commands_of(state))

    def won(self, state: State) -> bool:
        return any(matcher.holds(state.facts) for matcher in self._goal)

    def _commands_of(self, state: State) -> dict[str, Instance]:
        commands = self._commands.get(state)
        if commands is None:
            with _located(self.file, "grammar"):
                commands = self._find_commands(state.facts)
            while len(self._commands) >= KEPT_STATES:
                self._commands.pop(next(iter(self._commands)), None)
            self._commands[state] = commands
        return commands

    def _find_commands(self, facts: Facts) -> dict[str, Instance]:
        found: dict[str, Instance] = {}
        for number, action in enumerate(self._actions):
            for arguments in action.applicable(facts):
                text = action.command(self._renderer, facts, arguments)
                instance = Instance(number, arguments)
                if text not in found or instance < found[text]:
                    found[text] = instance
        return dict(sorted(found.items()))

    def _render(self, symbols: Sequence[Symbol], facts: Facts, mapping: Answer) -> str:
        with _located(self.file, "grammar"):
            return self._renderer.render(symbols, facts, mapping)


@contextmanager
def _located(file: GameFile, part: str) -> Iterator[None]:
    """Name the file and its part in an input error."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file.path}: {part}: {error}") from None


@lru_cache(maxsize=1024)  # a release has one domain, and a grammar for each wording of a task
def _read_by_texts(domain: str, grammar: str) -> frozenset[str]:
    """Return the predicates that a text reads."""
    known, texts = parse_domain(domain), parse_grammar(grammar)
    roots = list(INTRO)
    for action in known.actions:
        if action.name not in texts.actions:
            raise InputError(f"action '{action.name}' of the domain has no template and feedback")
        text = texts.actions[action.name]
        roots += [*text.template, *text.feedback]
    variables_below(texts, roots)  # checks all expressions
    atoms = list(queries_below(texts, roots))
    for atom in atoms:
        for _, kind in atom.placeholders:
            if kind not in known.supertypes:
                raise InputError(f"unknown type '{kind}' in a query: {nearest(kind, known.supertypes)}")
    return frozenset(atom.predicate for atom in atoms)


@lru_cache(maxsize=16)
def _read_by_conditions(domain: str) -> frozenset[str]:
    """Return the predicates that a condition of an action reads."""
    found: set[str] = set()
    for action in parse_domain(domain).actions:
        for cases in (action.precondition, *(effect.condition for effect in action.effects)):
            found.update(predicate for case in cases for predicate in _predicates(case))
    return frozenset(found)


def _predicates(case: Case) -> Iterator[str]:
    for atom in case.facts:
        yield atom.predicate
    for test in case.tests:
        if isinstance(test, Literal):
            yield test.atom.predicate
        else:
            for inner in test.cases:
                yield from _predicates(inner)
