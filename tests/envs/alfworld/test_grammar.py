"""Reading and writing the text grammar of ALFWorld games."""

import json

import pytest

from rl_agents.envs.alfworld import grammar
from rl_agents.envs.alfworld.grammar import Each, QueryAtom, Reference, Renderer, Symbol, Text, Value
from rl_agents.envs.alfworld.world import StaticRelation, World
from rl_agents.errors import InputError


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("", ()),
        ("\nThere is\n\n#a.b#", (Text("There is\n\n"), Reference("a.b"))),
        ("// hidden\nfoo", (Text("foo"),)),
        ("a#b c(d)#\tc\td", (Text("a"), Reference("b c(d)"), Text("c\td"))),
        ("say \"hi\" now", (Text("say "), Text("hi"), Text(" now"))),
        ("{r.name or r.id}", (Each(Value("r.name or r.id"), None, False),)),
        ("{x}\n  //y", (Each(Value("x"), None, False), Text("\n  //y"))),
        ("[{#o(r)# | f(r:b) & g(r:b)}].", (Each(Reference("o(r)"), "f(r:b) & g(r:b)", True), Text("."))),
        ("{'x' + r.name | f(r:b)}", (Each(Value("'x' + r.name "), "f(r:b)", False),)),
        # Reading stops at the first place that fits no rule.
        ("a;b", (Text("a"),)),
        ("x [y] z", (Text("x "),)),
        ("{a}}b", (Each(Value("a"), None, False),)),
        ("{x | }", ()),
        ('a"b', (Text("a"),)),
    ],
)  # fmt: skip
def test_texts_are_read_as_the_real_parser_reads_them(text: str, symbols: tuple[Symbol, ...]) -> None:
    assert grammar.parse_text(text) == symbols


def test_queries() -> None:
    assert grammar.parse_query(" in( o:object , r : receptacle)& !lit(r:receptacle) & done()") == (
        QueryAtom("in", (("o", "object"), ("r", "receptacle"))),
        QueryAtom("not_lit", (("r", "receptacle"),)),
        QueryAtom("done", ()),
    )
    for bad in ("", "in(o:object", "in(o object)", "in(o:object) | lit(o:object)", "in(,)"):
        with pytest.raises(InputError, match="not a"):
            grammar.parse_query(bad)


@pytest.mark.parametrize(
    "source", ["__import__('os')", "r.__class__", "r.name.upper()", "r.name[0]", "lambda: r", "1", "f'{r}'", "a" * 300]
)
def test_expressions_are_never_code(source: str) -> None:
    with pytest.raises(InputError, match="unsupported expression"):
        grammar.parse_expression(source)


def grammar_text(productions: dict[str, object], actions: str = "") -> str:
    return f'# comment\ngrammar :: """{json.dumps(productions)}""";\n{actions}'


def test_a_file_and_unknown_symbols_in_it() -> None:
    action = 'action Go { feedback :: "#x#"; pddl :: """(:action)"""; template :: "go {r}"; }\n'
    more = (
        'action b { template :: "b"; feedback :: "#y#"; grammar :: """\n# no\n{"y": [{"rhs": "Y", "weight": 3}]}"""; }'
    )
    found = grammar.parse_grammar(grammar_text({"x": [{"rhs": "X"}], "y": []}, action + more))
    assert found.actions["go"].template == (Text("go "), Each(Value("r"), None, False))
    assert [p.symbols for p in found.productions["y"]] == [(Text("Y"),)]
    found = grammar.parse_grammar(grammar_text({"look": [{"rhs": "#lok#"}]}))
    with pytest.raises(InputError, match="symbol '#lok#' has no productions: did you mean 'look'"):
        list(grammar.symbols_below(found, grammar.parse_text("#look#")))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('grammar :: """\n{"a": [}""";', "line 2: the grammar is not valid JSON"),
        ('grammar :: """{}"""', 'line 1: a block """..."""; is expected'),
        ('\naction a { template :: "x"; }', "line 2: action a has no feedback"),
        ("\n\nactoin a {}", "line 3: 'grammar ::' or 'action NAME {' is expected"),
    ],
)
def test_bad_files(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        grammar.parse_grammar(text)
    assert str(error.value).startswith(message)


SUPERTYPES = {"object": frozenset[str](), "thing": frozenset(["object"]), "cup": frozenset(["thing", "object"])}


def rendered(text: str, productions: dict[str, object] | None = None, **mapping: int) -> str:
    """Write ``text`` in a world of three objects, of which numbers 0 and 2 are wet."""
    identifiers, types = ("a_1", "b_1", "c_1"), ("thing", "cup", "thing")
    world = World(
        identifiers=identifiers, names=("cup 1", "mug 1", "pot 1"), types=types, supertypes=SUPERTYPES,
        static={"on": StaticRelation([(0, 1), (2, 1), (1, 0)]), "cold": StaticRelation([])}, slots={"wet": 0},
        numbers={identifier: number for number, identifier in enumerate(identifiers)},
    )  # fmt: skip
    words = {"list_empty": "nothing", "list_separator": ", ", "list_last_separator": ", and "}
    separators = {symbol: [{"rhs": word}] for symbol, word in words.items()}
    found = grammar.parse_grammar(grammar_text({**separators, **(productions or {})}))
    seen = {(name, "thing"): (number, types[number]) for name, number in mapping.items()}
    return Renderer(found, world).render(grammar.parse_text(text), (frozenset([(2,), (0,)]),), seen)


def test_writing() -> None:
    assert rendered("[{x.indefinite + ' ' + x.name | wet(x:thing)}].") == "a cup 1, and a pot 1."
    assert rendered("{x.name | wet(x:thing)}") == "cup 1pot 1"
    assert rendered("[{x | cold(x:thing)}]") == "nothing"
    assert rendered("{x.name or x.id}, {x.id}, {x.definite} {x.type}", x=0) == "cup 1, a_1, the thing"
    assert rendered("[{x | wet(x:thing)}]", y=0) == "pot 1"
    assert rendered("[{x + y | wet(x:thing) & wet(y:thing)}]") == "cup 1pot 1, and pot 1cup 1"
    assert rendered("[{x | on(x:thing, y:cup)}]") == "cup 1, and pot 1"
    assert rendered("[{x | on(x:thing, y:thing)}]") == "mug 1, cup 1, and pot 1"
    assert rendered("[{x | on(x:object, y:thing)}]") == "mug 1, cup 1, and pot 1"


def test_the_first_production_that_applies() -> None:
    productions: dict[str, object] = {
        "state": [{"condition": "wet(x:thing) & on(x:thing, y:cup)", "rhs": "wet"}, {"rhs": "dry"}],
        "never": [{"condition": "cold(x:thing)", "rhs": ""}],
        "loop": [{"rhs": "#loop#"}],
    }
    assert rendered("#state#", productions, x=0) == "wet"
    assert rendered("#state#", productions, x=1) == "dry"
    with pytest.raises(InputError, match="no production of symbol '#never#' applies"):
        rendered("#never#", productions)
    with pytest.raises(InputError, match="deeper than 60"):
        rendered("#loop#", productions)
    with pytest.raises(InputError, match="variable 'z' has no value"):
        rendered("{z.name}")
