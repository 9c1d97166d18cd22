"""Tool calls in responses: every written form, every defect, and the feedback that names it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.tools import calls as reading
from rl_agents.tools.calls import ToolCall, check_call, read_response, read_tools, write_response

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
          "required": ["city"], "additionalProperties": False}  # fmt: skip
TOOLS = read_tools([{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}])
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


def test_a_response_with_thoughts_content_and_parallel_calls() -> None:
    thoughts = '<think>maybe <tool_call>{"name": "x"}</tool_call></think>'
    text = f"{thoughts}Let me look. {CALL}\n{CALL.replace('Rome', 'Oslo')}"
    response = read_response(text)
    assert (response.content, response.problem) == ("Let me look.", "")
    assert [call.arguments["city"] for call in response.calls] == ["Rome", "Oslo"]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "weather", "arguments": {"city": "Rome"}}',
        '{"name": "weather", "parameters": {"city": "Rome"}}',
        '{"tool_calls": [{"id": "1", "type": "function", "function": {"name": "weather", '
        '"arguments": "{\\"city\\": \\"Rome\\"}"}}]}',
        CALL,
        '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Rome\\"}"}</tool_call>',
    ],
)
def test_the_written_forms_of_one_call(text: str) -> None:
    assert read_response(text).calls == (ToolCall("weather", {"city": "Rome"}),)


@pytest.mark.parametrize("text", ["hello", '{"analysis": "x", "commands": []}', '{"name": "Ann"}', "{broken", ""])
def test_other_text_is_content(text: str) -> None:
    response = read_response(text)
    assert (response.content, response.calls, response.problem) == (text, (), "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (CALL.removesuffix("</tool_call>"), "without its </tool_call>"),
        (f"{CALL} </tool_call>", "without its </tool_call>"),
        ('<tool_call>{"name": "weather", "arguments": {"a": 1, "a": 2}}</tool_call>', "the key 'a' occurs twice"),
        ('<tool_call>{"arguments": {}}</tool_call>', "without a name"),
        ('<tool_call>{"name": "weather", "arguments": "{"}</tool_call>', "the arguments of 'weather' are not JSON"),
        ('<tool_call>{"name": "w", "arguments": ' + '{"a":' * 70 + "1" + "}" * 71 + "</tool_call>", "deeper than 64"),
        (CALL * (reading.MAX_CALLS + 1), f"{reading.MAX_CALLS + 1} tool calls"),
        ("x" * (reading.MAX_RESPONSE_CHARACTERS + 1), "longer than"),
        ("<think>and so on", "</think> is missing"),
        ("<tool_call>" * 20_000, "without its </tool_call>"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, problem: str) -> None:
    response = read_response(text)
    assert problem in response.problem and not response.calls


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [({"city": "Rome", "days": 2}, ""), ({}, "'city' is a required property"),
     ({"city": 3}, "at 'city': 3 is not of type 'string'"),
     ({"city": "Rome", "days": 0}, "at 'days': 0 is less than the minimum of 1"),
     ({"city": "Rome", "moon": True}, "'moon' was unexpected")],
)  # fmt: skip
def test_a_call_is_held_to_its_schema(arguments: dict, problem: str) -> None:
    found = check_call(ToolCall("weather", arguments), TOOLS)
    assert problem in found and bool(found) == bool(problem)


def test_references_to_elsewhere_are_not_followed() -> None:
    remote = read_tools([{"name": "t", "parameters": {"$ref": "http://127.0.0.1:9/schema.json"}}])
    assert "cannot be followed" in check_call(ToolCall("t", {}), remote)
    endless = read_tools([{"name": "t", "parameters": {"$ref": "#"}}])
    assert "cannot be followed" in check_call(ToolCall("t", {}), endless)


@pytest.mark.parametrize(
    ("definition", "problem"),
    [("weather", "tools is str"), ([3], "a tool definition is int"),
     ([{"function": {"parameters": {}}}], "without a usable name"), ([{"name": "a b"}], "without a usable name"),
     ([{"name": "t", "parameters": [1]}], "parameters is list"),
     ([{"name": "t", "parameters": {"type": "objekt"}}], "parameters is no JSON schema"),
     ([{"name": "t"}, {"name": "t"}], "tool 't' is defined twice")],
)  # fmt: skip
def test_definitions_that_are_none(definition: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_tools(definition)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b.c"]), st.dictionaries(st.text("xyz"), json_values)), max_size=3))
def test_reading_is_the_inverse_of_writing(calls: list[tuple[str, dict]]) -> None:
    written = [ToolCall(name, arguments) for name, arguments in calls]
    response = read_response(write_response("so be it", written))
    assert response.content == "so be it" and list(response.calls) == written


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    read_response(text)
    read_response(f"<tool_call>{text}</tool_call>")
