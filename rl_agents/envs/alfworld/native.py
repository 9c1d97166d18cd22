"""The native ALFWorld engine: plays a game file in microseconds, without a planner.

`NativeGame` holds what never changes and is shared by all episodes of a game; a `State` is a small immutable value, so
a snapshot is a reference. Actions, commands and texts come from the game file. Observations, admissible commands and
``won`` equal those of the real TextWorld engine behind ALFWorld's name demangler
(``tests/envs/alfworld/differential.py`` holds them against each other).

Where the two differ (none of it shows on ALFWorld's own domain and grammar):

- A goal that no sequence of actions can reach: TextWorld fails to load such a game, this engine plays it.
- An effect under a condition: TextWorld's texts take it to have happened even where the condition was false. Here texts
  show the facts.
- ``not_p`` in a query: TextWorld has it once an effect made ``p`` false, except where ``p`` could never have been true;
  here without that exception.
- Several actions with the same command: TextWorld takes the first of its planner, this engine the first of the domain.
- An action whose effects can never change anything because of conditions on them is left out by TextWorld. Both leave
  out one whose effects its precondition already states, such as going to where the agent is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from rl_agents.envs.alfworld.actions import CompiledAction, Instance, compile_action
from rl_agents.envs.alfworld.game_file import GameFile, load_game
from rl_agents.envs.alfworld.grammar import Symbol, parse_grammar, parse_text
from rl_agents.envs.alfworld.matching import Matcher, compile_case
from rl_agents.envs.alfworld.normal_form import Case, Literal, cases
from rl_agents.envs.alfworld.pddl import Action
from rl_agents.envs.alfworld.pddl_parser import parse_domain, parse_problem
from rl_agents.envs.alfworld.rendering import Answer, Renderer, fields_below, queries_below
from rl_agents.envs.alfworld.world import Facts, build_world
from rl_agents.errors import InputError, nearest

NOTHING_HAPPENS = "Nothing happens."
INTRO = parse_text("#intro#")

#: States whose commands a game keeps: members of a group of episodes meet the same states.
KEPT_STATES = 32


@dataclass(frozen=True, slots=True)
class State:
    """What holds at a moment of a game; equal states have equal texts. Hashable, and meaningful with its game only."""

    facts: Facts


@dataclass(frozen=True, slots=True)
class StepResult:
    """
    Attributes:
        state: the state after the command.
        feedback: what the player reads.
        won: whether the goal holds now; the reward is 1 then, else 0.
    """

    state: State
    feedback: str
    won: bool


@dataclass(eq=False)
class NativeGame:
    """A compiled game. Make one with `load` (kept and shared) or `compile`."""

    file: GameFile
    _start: State
    _actions: tuple[CompiledAction, ...]
    _goal: tuple[Matcher, ...]
    _renderer: Renderer
    _commands: dict[State, dict[str, Instance]] = field(default_factory=dict)
    _intro: str | None = None

    @staticmethod
    def load(path: str | Path) -> NativeGame:
        """Load and compile a game file, once per process as long as the file stays the same.

        Raises:
            InputError: the file is no playable game; one line with the file, the part and the line in it.
        """
        path = Path(path)
        try:
            stat = path.stat()
        except OSError:
            return NativeGame.compile(load_game(path))  # raises with the reason
        return _loaded(path.absolute(), stat.st_mtime_ns, stat.st_size)

    @staticmethod
    def compile(file: GameFile) -> NativeGame:
        """Compile a game.

        Raises:
            InputError: see `load`.
        """
        with _located(file, "pddl_domain"):
            domain = parse_domain(file.domain)
        with _located(file, "grammar"):
            grammar = parse_grammar(file.grammar)
            read = _read_by_texts(file.domain, file.grammar)
        with _located(file, "pddl_problem"):
            problem = parse_problem(file.problem, domain)
            goal = cases(problem.goal)
        with _located(file, "pddl_domain"):
            read |= _read_by_conditions(file.domain) | {predicate for case in goal for predicate in _predicates(case)}
            world, facts = build_world(domain, problem, read)
            actions = [compile_action(a, grammar.actions[a.name], grammar, world, facts) for a in domain.actions]
        matchers = [compile_case(case, world, facts) for case in goal]
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
        """Play ``command``. It must be one of the admissible ones, letter for letter, white space around it apart.

        Anything else changes nothing and is answered ``Nothing happens.``
        """
        instance = self._commands_of(state).get(command.strip())
        if instance is None:
            return StepResult(state, NOTHING_HAPPENS, self.won(state))
        action = self._actions[instance.action]
        after = State(action.applied(state.facts, instance.arguments))
        feedback = self._render(action.feedback, after.facts, action.mapping(instance.arguments))
        return StepResult(after, feedback, self.won(after))

    def admissible(self, state: State) -> tuple[str, ...]:
        """Return the commands that do something in ``state``, sorted."""
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


@lru_cache(maxsize=1024)
def _loaded(path: Path, modified: int, size: int) -> NativeGame:
    return NativeGame.compile(load_game(path))


@contextmanager
def _located(file: GameFile, part: str) -> Iterator[None]:
    """Put the file and the part of it in front of an input error."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{file.path}: {part}: {error}") from None


@lru_cache(maxsize=1024)  # a release has one domain, and a grammar for each wording of a task
def _read_by_texts(domain: str, grammar: str) -> frozenset[str]:
    """Return the predicates that a text looks at.

    Raises:
        InputError: the grammar lacks an action, a symbol or a type, or has a text that cannot be written.
    """
    known, texts = parse_domain(domain), parse_grammar(grammar)
    roots = list(INTRO)
    for action in known.actions:
        if action.name not in texts.actions:
            raise InputError(f"action '{action.name}' of the domain has no template and feedback")
        text = texts.actions[action.name]
        roots += [*text.template, *text.feedback]
    for _ in fields_below(texts, roots):
        pass
    atoms = list(queries_below(texts, roots))
    for atom in atoms:
        for _, kind in atom.placeholders:
            if kind not in known.supertypes:
                raise InputError(f"unknown type '{kind}' in a query: {nearest(kind, known.supertypes)}")
    return frozenset(atom.predicate for atom in atoms)


@lru_cache(maxsize=16)
def _read_by_conditions(domain: str) -> frozenset[str]:
    """Return the predicates that a condition of an action looks at."""
    return frozenset(predicate for action in parse_domain(domain).actions for predicate in _predicates_of(action))


def _predicates_of(action: Action) -> set[str]:
    formulas = [action.precondition, *(effect.condition for effect in action.effects)]
    return {predicate for formula in formulas for case in cases(formula) for predicate in _predicates(case)}


def _predicates(case: Case) -> Iterator[str]:
    for atom in case.facts:
        yield atom.predicate
    for test in case.tests:
        if isinstance(test, Literal):
            yield test.atom.predicate
        else:
            for inner in test.cases:
                yield from _predicates(inner)
