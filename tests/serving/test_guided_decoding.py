"""What guided decoding allows, by the library that vLLM asks: texts that fit a structure, and texts that do not."""

from typing import Any

import pytest

from rl_agents.tools.calls import Tool, read_response
from rl_agents.tools.structured_output import ANY_OBJECT, Structure

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ADD, ANY = Tool("add", "adds", SCHEMA), Tool("any")
#: One call's schema refers to its own root.
NODE = {
    "type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}},
    "$defs": {"n": {"enum": ["x", "y"]}},
}  # fmt: skip
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call>'
OTHER = '<tool_call>{"name": "any", "arguments": {"x": [1]}}</tool_call>'
WRONG = '<tool_call>\n{"name": "add", "arguments": {"a": "2"}}\n</tool_call>'
WIDE = f'{{"a":{" " * 40}1}}'
THOUGHT = "<think>{ not yet <tool_call> </think>\n\n"
ROWS: list[tuple[str, Structure, str, list[str], list[str]]] = [
    ("schema", Structure(SCHEMA), "", ['{"a": 1}', '{"a":1}', THOUGHT + '{"a": 1}'], [WIDE, "{}", '{"a": "x"}', "1"]),
    ("any object", Structure(ANY_OBJECT), "", ["{}", '{"x": {"y": [1, null]}}'], ["[]", "hi", '"x"']),
    ("inside a thought", Structure(SCHEMA), "think", ['so</think>{"a": 1}'], ['{"a": 1}', '<think>x</think>{"a": 1}x']),
    ("inside reasoning", Structure(SCHEMA), "reasoning", ['so</reasoning>\n{"a": 1}'], ['so</think>{"a": 1}']),
    (
        "required", Structure(None, (ADD, ANY), must_call=True), "",
        [CALL, OTHER, f"{CALL}\n{OTHER}", THOUGHT + CALL], ["", "hi", WRONG, f"hi {CALL}", f"{CALL} hi"],
    ),
    ("one", Structure(None, (ADD, ANY), must_call=True, one_call=True), "", [CALL, OTHER], [f"{CALL}\n{OTHER}"]),
    ("named", Structure(None, (ADD,), must_call=True, one_call=True), "", [CALL], [OTHER]),
    ("strict", Structure(None, (ADD, ANY)), "", ["hi", CALL, f"hi {CALL}\n{OTHER} bye"], [WRONG, f"hi {WRONG}"]),
    ("at most one", Structure(None, (ADD,), one_call=True), "", ["hi", f"hi {CALL}"], [f"{CALL}\n{CALL}"]),
    ("schema or calls", Structure(SCHEMA, (ADD,)), "", ['{"a": 1}', CALL], ["hi", WRONG, f'{{"a": 1}}{CALL}']),
    (
        "references", Structure(None, (Tool("node", "", NODE),), must_call=True), "",
        ['<tool_call>{"name": "node", "arguments": {"n": "y"}}</tool_call>'],
        ['<tool_call>{"name": "node", "arguments": {"n": "z"}}</tool_call>'],
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def fits() -> Any:
    """A function that says whether a text, ended, fits a structure."""
    xgrammar = pytest.importorskip("xgrammar", reason="comes with vLLM")
    letters = xgrammar.TokenizerInfo(
        [*(bytes([byte]) for byte in range(256)), "<end>"], vocab_type=xgrammar.VocabType.RAW, stop_token_ids=[256]
    )
    compiler = xgrammar.GrammarCompiler(letters, max_threads=1)

    def fits(structure: str, text: str) -> bool:
        matcher = xgrammar.GrammarMatcher(compiler.compile_structural_tag(structure))
        return bool(matcher.accept_string(text)) and bool(matcher.accept_token(256))

    return fits


@pytest.mark.parametrize(
    ("structure", "inside", "good", "bad"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_what_fits(fits: Any, structure: Structure, inside: str, good: list[str], bad: list[str]) -> None:
    tag, curt = structure.tag(inside, thinks=True), structure.tag(inside)
    assert [text for text in good if not fits(tag, text)] == []
    assert [text for text in bad if fits(tag, text) or fits(curt, text)] == []
    assert [text for text in good if not fits(curt, text)] == [text for text in good if text.startswith("<think>")]


def test_calls_that_fit_are_calls_that_are_read(fits: Any) -> None:
    tag = Structure(None, (ADD, ANY), must_call=True).tag(thinks=True)
    for text in (CALL, f"{CALL}\n{OTHER}", THOUGHT.replace("<tool_call>", "") + CALL):
        response = read_response(text)
        assert fits(tag, text) and not response.problem and response.calls[0].arguments == {"a": 2}
