"""Reading PDDL, normal forms, and loops over facts."""

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.envs.alfworld import pddl
from rl_agents.envs.alfworld.pddl import Atom, Case, Typed
from rl_agents.envs.alfworld.world import build_world, compile_case, player_names
from rl_agents.errors import InputError

DOMAIN = """(define (domain d) (:requirements :adl)
 (:types room thing - object cup - thing)
 (:predicates (in ?x - thing ?r - room) (Clean ?x - thing) (open ?r - room))
 (:functions (total-cost) - number)
 (:action wash :parameters (?x - thing ?r - room)
   :precondition (and (in ?x ?r) (not (clean ?x)))
   :effect (and (CLEAN ?x) (increase (total-cost) 1) (when (open ?r) (not (in ?x ?r)))))
 (:action wait :parameters () :precondition () :effect (increase (total-cost) 1)))"""
PROBLEM = """(define (problem p) (:domain d) (:objects Cup1 cup2 - cup  jug - thing  hall - room)
 (:init (in cup1 hall) (in jug hall) (= (total-cost) 0) (not (clean jug)))
 (:goal (forall (?x - cup) (clean ?x))))"""


def test_domain_and_problem() -> None:
    domain = pddl.parse_domain(DOMAIN)
    assert domain.supertypes["cup"] == {"thing", "object"}
    assert domain.arities == {"=": 2, "in": 2, "clean": 1, "open": 1}
    # An action without effects is never available.
    (wash,) = domain.actions
    assert wash.parameters == (Typed("?x", "thing"), Typed("?r", "room"))
    assert [(effect.atom, effect.positive) for effect in wash.effects] == [
        (Atom("clean", ("?x",)), True),
        (Atom("in", ("?x", "?r")), False),
    ]
    assert wash.effects[1].condition == (Case(facts=(Atom("open", ("?r",)),)),)
    problem = pddl.parse_problem(PROBLEM, domain)
    assert problem.objects == {"cup1": "cup", "cup2": "cup", "jug": "thing", "hall": "room"}
    assert problem.facts == (Atom("in", ("cup1", "hall")), Atom("in", ("jug", "hall")))
    assert problem.mentioned == {"cup1", "jug", "hall"}


@pytest.mark.parametrize(
    ("text", "message"),
    [("(a\n(b)", "line 2: the text ends before the definition does (1 parentheses open)"),
     ("(a)\n(b)", "line 2: text after the end"), ("(a\n é)", "line 2: a character outside ASCII"),
     ("(" * 65, "line 1: parentheses nested deeper than 64")],
)  # fmt: skip
def test_unbalanced_text(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        pddl.read_expression(text)
    assert str(error.value).startswith(message)


def test_comments_alternatives_and_names() -> None:
    assert pddl.read_expression("; é (\n(a ?x) ; )") == ["a", "?x"]
    nine = " (or (clean ?x) (open hall))" * 9
    goal = PROBLEM.replace("(clean ?x))))", f"(and{nine}))))")
    with pytest.raises(InputError, match="line 3: a condition with more than 256 alternatives"):
        pddl.parse_problem(goal.replace("forall", "exists"), pddl.parse_domain(DOMAIN))
    names = player_names(sorted(["mug_bar__plus_1", "mug_bar__minus_2", "sink_bar_1_bar_sinkbasin", "agent1"]))
    assert names == {
        "mug_bar__minus_2": "mug 2", "mug_bar__plus_1": "mug 1", "sink_bar_1_bar_sinkbasin": "sinkbasin 1",
        "agent1": "agent1 ",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(open ?r) (not (in", "(opened ?r) (not (in", "line 7: unknown predicate 'opened': did you mean 'open'?"),
        ("(not (clean ?x))", "(not (clean ?y))", "line 6: variable '?y' is not declared"),
        ("(in ?x ?r) (not (clean", "(in ?x) (not (clean", "line 6: predicate 'in' takes 2 arguments, not 1"),
        ("(?x - thing ?r - room)\n", "(?x - think ?r - room)\n", "line 5: action wash: unknown type 'think': did you"),
        ("(increase (total-cost) 1) (when", "(or (clean ?x)) (when", "line 7: unsupported effect 'or'"),
    ],
)
def test_bad_domain(old: str, new: str, message: str) -> None:
    assert old in DOMAIN
    with pytest.raises(InputError) as error:
        pddl.parse_domain(DOMAIN.replace(old, new))
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(in jug hall)", "(in jug hal)", "line 2: object 'hal' is not declared: did you mean 'hall'?"),
        ("(in jug hall)", "(inn jug hall)", "line 2: unknown predicate 'inn': did you mean 'in'?"),
        ("- thing", "- thin", "line 1: object 'jug' is of unknown type 'thin': did you mean 'thing'?"),
    ],
)
def test_bad_problem(old: str, new: str, message: str) -> None:
    assert old in PROBLEM
    with pytest.raises(InputError) as error:
        pddl.parse_problem(PROBLEM.replace(old, new), pddl.parse_domain(DOMAIN))
    assert str(error.value).startswith(message)


@dataclass(frozen=True)
class Part:
    """``(head part ...)``, or of a quantifier ``(head (variable - type) part)``; what a fact is, `Atom` says."""

    head: str
    parts: tuple["Part | Atom", ...]
    variable: Typed | None = None

    def __str__(self) -> str:
        bound = f"({self.variable.name} - {self.variable.type}) " if self.variable else ""
        return f"({self.head} {bound}{' '.join(map(text_of, self.parts))})"


def text_of(formula: Part | Atom) -> str:
    if isinstance(formula, Part):
        return str(formula)
    return f"({formula.predicate} {' '.join(formula.arguments)})"


_VARIABLES = ("?a", "?b", "?c")
_TERMS = st.sampled_from([*_VARIABLES, "cup1", "hall", "nobody"])
_ATOMS = st.one_of(
    st.builds(lambda x: Atom("clean", (x,)), _TERMS),
    st.builds(lambda x, y: Atom("in", (x, y)), _TERMS, _TERMS),
    st.builds(lambda x, y: Atom("=", (x, y)), _TERMS, _TERMS),
)
_BOUND = st.builds(Typed, st.sampled_from(_VARIABLES), st.sampled_from(["object", "thing", "cup", "room", "location,"]))
_FORMULAS = st.recursive(
    _ATOMS,
    lambda part: st.one_of(
        st.builds(lambda p: Part("not", (p,)), part),
        st.builds(Part, st.sampled_from(["and", "or", "imply"]), st.tuples(part, part)),
        st.builds(lambda head, p, v: Part(head, (p,), v), st.sampled_from(["exists", "forall"]), part, _BOUND),
    ),
    max_leaves=5,
)


def _holds(formula: Part | Atom, facts: set[Atom], objects: dict[str, set[str]], names: dict[str, str]) -> bool:
    if isinstance(formula, Atom):
        arguments = tuple(names.get(a, a) for a in formula.arguments)
        return arguments[0] == arguments[1] if formula.predicate == "=" else Atom(formula.predicate, arguments) in facts
    if (variable := formula.variable) is not None:
        scopes = [{**names, variable.name: value} for value in objects.get(variable.type, set())]
        found = [_holds(formula.parts[0], facts, objects, scope) for scope in scopes]
        return any(found) if formula.head == "exists" else all(found)
    held = [_holds(part, facts, objects, names) for part in formula.parts]
    return {"not": not held[0], "and": all(held), "or": any(held), "imply": not held[0] or held[-1]}[formula.head]


@settings(max_examples=60, deadline=None)
@given(
    formula=_FORMULAS,
    clean=st.sets(st.sampled_from(["cup1", "cup2", "jug"])),
    inside=st.sets(st.sampled_from(["cup1", "cup2", "jug"])),
)
def test_compiled_cases_mean_what_the_formula_says(formula: Part | Atom, clean: set[str], inside: set[str]) -> None:
    wash = "(:action wash :parameters (?x - thing ?r - room)"
    asking = f"(:action ask :parameters (?a ?b ?c) :precondition {text_of(formula)} :effect (clean ?a))\n {wash}"
    domain = pddl.parse_domain(DOMAIN.replace(wash, asking))
    facts = {Atom("clean", (x,)) for x in clean} | {Atom("in", (x, "hall")) for x in inside}
    text = " ".join(map(text_of, sorted(facts, key=str)))
    head, tail = PROBLEM.index("(:init"), PROBLEM.index(" (:goal")
    problem = pddl.parse_problem(f"{PROBLEM[:head]}(:init {text})\n{PROBLEM[tail:]}", domain)
    world, state = build_world(domain, problem, frozenset(["clean", "in"]))
    objects = {
        "object": set(problem.objects), "thing": {"cup1", "cup2", "jug"}, "cup": {"cup1", "cup2"}, "room": {"hall"},
    }  # fmt: skip
    free = [Typed(name, "object") for name in _VARIABLES]
    found = set()
    for case in domain.actions[0].precondition:
        matcher = compile_case(case, world, state, free=free)
        if matcher is not None:
            found |= {tuple(world.identifiers[number] for number in b[:3]) for b in matcher.matches(state)}
    expected = {
        values
        for values in product(problem.objects, repeat=3)
        if _holds(formula, facts, objects, dict(zip(_VARIABLES, values, strict=True)))
    }
    assert found == expected
