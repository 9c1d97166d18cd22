"""Actions compiled for one game: where they apply, what they are called, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rl_agents.envs.alfworld.grammar import ActionText, Grammar, Placeholder, Symbol
from rl_agents.envs.alfworld.matching import Binding, Matcher, RowGetter, compile_case, compile_terms, value_getter
from rl_agents.envs.alfworld.normal_form import Case, Literal, cases
from rl_agents.envs.alfworld.pddl import TRUE, Action, Atom, Effect
from rl_agents.envs.alfworld.rendering import Answer, Renderer, fields_below, queries_below
from rl_agents.envs.alfworld.world import NEGATED, Facts, Row, World
from rl_agents.errors import InputError

Slots = tuple[int | None, int | None]


class Instance(NamedTuple):
    """An action of the game by its number, and the objects that it is done with."""

    action: int
    arguments: Row


@dataclass(frozen=True, slots=True)
class Change:
    """One effect on a predicate that somebody reads.

    Attributes:
        slots: where the predicate and its ``not_`` predicate are kept; None: nobody reads it.
        row: from the binding of an occasion to the fact.
        occasions: cases of the effect's condition; None: always once.
    """

    slots: Slots
    positive: bool
    row: RowGetter
    occasions: tuple[Matcher, ...] | None


@dataclass(frozen=True, slots=True)
class Way:
    """One case of an action's precondition.

    Attributes:
        idle: tells of a binding that all effects are what the precondition states already. The action would change
            nothing, and is not available. None: that cannot happen.
    """

    matcher: Matcher
    idle: Callable[[Binding], bool] | None


@dataclass(frozen=True, slots=True)
class CompiledAction:
    """
    Attributes:
        placeholders: the parameters as the text grammar's queries name them.
        shown: positions of the parameters that the command depends on; None: it depends on the state, too.
    """

    name: str
    placeholders: tuple[Placeholder, ...]
    ways: tuple[Way, ...]
    changes: tuple[Change, ...]
    template: tuple[Symbol, ...]
    feedback: tuple[Symbol, ...]
    shown: tuple[int, ...] | None
    _commands: dict[Row, str] = field(default_factory=dict)

    def applicable(self, facts: Facts) -> Iterator[Row]:
        """Yield the objects that the action can be done with; the same ones twice where two cases allow it."""
        width = len(self.placeholders)
        for way in self.ways:
            for binding in way.matcher.matches(facts):
                if way.idle is None or not way.idle(binding):
                    yield tuple(binding[:width])

    def command(self, renderer: Renderer, facts: Facts, arguments: Row) -> str:
        """Return what the player types to do the action with ``arguments``."""
        if self.shown is None:
            return renderer.render(self.template, facts, self.mapping(arguments))
        key = tuple([arguments[position] for position in self.shown])
        text = self._commands.get(key)
        if text is None:
            text = self._commands[key] = renderer.render(self.template, facts, self.mapping(arguments))
        return text

    def mapping(self, arguments: Row) -> Answer:
        """Return what the parameters stand for in queries: the objects, as of the parameters' types."""
        return {
            placeholder: (number, placeholder[1])
            for placeholder, number in zip(self.placeholders, arguments, strict=True)
        }

    def applied(self, facts: Facts, arguments: Row) -> Facts:
        """Return the facts after the action. All conditions look at the facts before; adding wins over deleting."""
        made: dict[Slots, set[Row]] = {}
        unmade: dict[Slots, set[Row]] = {}
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


def _rows(change: Change, facts: Facts, arguments: Row) -> Iterator[Row]:
    if change.occasions is None:
        yield change.row(arguments)
        return
    for matcher in change.occasions:
        for binding in matcher.matches(facts, arguments):
            yield change.row(binding)


def compile_action(action: Action, text: ActionText, grammar: Grammar, world: World, facts: Facts) -> CompiledAction:
    """Compile ``action`` for a game that starts with ``facts``.

    Raises:
        InputError: an effect on an object that the game lacks, or a condition with too many alternatives.
    """
    placeholders = tuple((parameter.name.strip("?"), parameter.type) for parameter in action.parameters)
    ways = []
    for case in cases(action.precondition):
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
    named = {name for atom in atoms for name, _ in atom.placeholders}
    named |= {shown.variable for shown in fields_below(grammar, text.template)}
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
    if effect.variables or effect.condition != TRUE:
        compiled = [compile_case(case, world, facts, known, effect.variables) for case in cases(effect.condition)]
        occasions = tuple(matcher for matcher in compiled if matcher is not None)
    return Change(slots, effect.positive, value_getter(terms), occasions)


def _idle(action: Action, case: Case, world: World) -> Callable[[Binding], bool] | None:
    """Return the test of `Way.idle` for one case of the precondition."""
    names = [variable.name for variable in (*action.parameters, *case.variables)]
    numbering = {name: number for number, name in enumerate(names)}
    denied = [test.atom for test in case.tests if isinstance(test, Literal) and not test.positive]
    added = [effect.atom for effect in action.effects if effect.positive and _is_plain(effect)]
    effects = []
    for effect in action.effects:
        # Deleting what another effect adds deletes nothing.
        stated = case.facts if effect.positive else [*denied, *(added if _is_plain(effect) else [])]
        same = [pair for atom in stated if (pair := _unified(effect.atom, atom, numbering, world)) is not None]
        if effect.variables or not same:
            return None
        effects.append(same)
    return lambda binding: all(any(one(binding) == other(binding) for one, other in same) for same in effects)


def _is_plain(effect: Effect) -> bool:
    return not effect.variables and effect.condition == TRUE


def _unified(left: Atom, right: Atom, numbering: dict[str, int], world: World) -> tuple[RowGetter, RowGetter] | None:
    """Return what must be equal for the two atoms to be one; None if they never are."""
    terms = [compile_terms(atom, numbering, world) for atom in (left, right)]
    if left.predicate != right.predicate or terms[0] is None or terms[1] is None:
        return None
    return value_getter(terms[0]), value_getter(terms[1])
