"""Responses with tags, whose reading takes linear time, and turns of an agent with tools: calls or an answer."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.envs.stateful import read_tags
from rl_agents.envs.tool_turns import BOTH, EMPTY, NEITHER, SEVERAL, read_answer
from rl_agents.envs.webshop.pages import Page
from rl_agents.envs.webshop.prompts import read_command
from rl_agents.tools.calls import read_response
from rl_agents.tools.toolbox import MAX_FEEDBACK_CHARACTERS

CALL = '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>'


def test_calls_and_answers() -> None:
    response = read_response(f"<think>no <answer>x</answer></think> {CALL} {CALL}")
    assert read_answer(response) == ("", "") and [call.name for call in response.calls] == ["search", "search"]
    response = read_response(f"<think>{CALL}</think><answer> Rome. It is old. </answer>")
    assert read_answer(response) == ("Rome. It is old.", "")
    assert read_tags("<answer>" * 30_000 + "<interact>x</interact>").content == "x"


@pytest.mark.parametrize(
    ("text", "problem"),
    [("hello", NEITHER), ("", NEITHER), ("<interact>x</interact>", NEITHER), (f"{CALL}<answer>x</answer>", BOTH),
     (f"<answer>{CALL}</answer>", BOTH), ("<answer>a</answer><answer>b</answer>", SEVERAL),
     ("<answer> </answer>", EMPTY), ("<answer>x", NEITHER), ("<tool_call>", "a <tool_call> without its </tool_call>")],
)  # fmt: skip
def test_what_cannot_be_played_says_why(text: str, problem: str) -> None:
    assert read_answer(read_response(text)) == ("", problem)


def test_what_is_told_repeats_little_of_the_response() -> None:
    call = json.dumps({"name": "<|im_end|>" * 9999, "arguments": 3})
    said = f"<tool_call>{call}</tool_call>"
    for problem in (read_answer(read_response(said))[1], read_command(said, Page("search", (), ()), "steppo").detail):
        assert 0 < len(problem) <= MAX_FEEDBACK_CHARACTERS


@settings(deadline=None)
@given(st.text())
def test_every_text_is_one_kind(text: str) -> None:
    response = read_response(text)
    answer, problem = read_answer(response)
    assert bool(answer) + bool(problem) + bool(response.calls and not problem) == 1


_WHOLE = re.compile(r"<(interact|answer)>(.*?)</\1>", re.DOTALL)
_PIECES = st.sampled_from(["<answer>", "</answer>", "<interact>", "</interact>", "x", "\n", "<"])


@given(st.lists(_PIECES, max_size=10).map("".join))
def test_the_walk_equals_the_expression(text: str) -> None:
    found, action = _WHOLE.findall(text), read_tags(text)
    assert (action.kind == "malformed") == (len(found) != 1)
    if len(found) == 1:
        assert (action.kind, action.content) == (found[0][0], found[0][1].strip())
