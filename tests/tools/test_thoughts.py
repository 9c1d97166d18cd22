"""Thoughts and words, for every form that chat templates give a response; and everyone who reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agents.chat.messages import split_thoughts
from rl_agents.envs.alfworld.prompts import read_command
from rl_agents.envs.stateful import NO_ACTION, read_tags
from rl_agents.envs.tool_turns import read_answer
from rl_agents.rollout.truncation import question_of
from rl_agents.tools.calls import read_response
from rl_agents.tools.thoughts import Spoken, read_thoughts

CALL = '<tool_call>{"name": "env_step", "arguments": {"command": "look"}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "thoughts", "words", "ends"),
    [
        ("<think>a</think>b", "a", "b", True),
        (" \n<think>a</think>b", "a", "b", True),
        ("a</think>b", "a", "b", True),  # the template opened the tag
        ("<think>a</think>b<think>c</think>d", "a</think>b<think>c", "d", True),
        ("a</think>b<think>c</think>d", "a</think>b<think>c", "d", True),
        ("<think>a", "a", "", False),
        ("a</think> <think>b", "ab", " ", False),
        ("b<think>a", "a", "b", False),
        ("<think>a</think>b<think>c", "ac", "b", False),
        ("<thinking>b", "", "<thinking>b", True),
    ],
)
def test_thoughts_and_words(text: str, thoughts: str, words: str, ends: bool) -> None:
    assert read_thoughts(text) == Spoken(thoughts, words, ends)


def test_a_tag_inside_a_calls_arguments_is_text_and_many_take_no_time() -> None:
    written = '<tool_call>{"name": "grep", "arguments": {"pattern": "<think>"}}</tool_call>'
    assert read_thoughts(f"<think>a</think>{written}").words == written
    assert read_response(written).calls[0].arguments == {"pattern": "<think>"}
    assert read_thoughts(f"<think>{written}").words == ""
    assert read_thoughts("<think>" * 60_000 + "<tool_call>" * 60_000).words == ""
    assert read_thoughts("</think>" * 60_000 + "<tool_call>" * 60_000).ends


@given(st.lists(st.sampled_from(["<think>", "</think>", "<reasoning>", "</reasoning>", "a", " "]), max_size=9))
def test_words_hold_no_tag_and_follow_the_last_closing_one(pieces: list[str]) -> None:
    text = "".join(pieces)
    said = read_thoughts(text)
    assert said.words in text and "<" not in said.words
    closing = [place for place, piece in enumerate(pieces) if piece.startswith("</")]
    after = pieces[closing[-1] + 1 :] if closing else pieces
    opening = [place for place, piece in enumerate(after) if piece.startswith("<")]
    assert said.words == "".join(after[: opening[0]] if opening else after) and said.ends is not bool(opening)


def test_nothing_inside_an_open_thought_is_done_or_answered() -> None:
    answer = "<think>it must be <answer>123</answer>"
    assert read_tags(answer).problem == NO_ACTION and read_answer(read_response(answer))[1]
    assert read_tags(f"so</think> {answer}").problem == NO_ACTION
    assert read_command("<think>now <action>look</action>", bare=False) is None
    assert read_command(f"<think>now {CALL}", bare=False) is None
    assert not read_response(f"Well. <think>now {CALL}").calls
    assert question_of("<think>Is it <interact>red</interact>?") == ""


@pytest.mark.parametrize("opening", ["<think>", ""])
def test_every_reader_skips_a_thought_that_the_template_opened(opening: str) -> None:
    thought = f"{opening}not <answer>1</answer>, {CALL} is it?</think>"
    assert read_tags(f"{thought} <answer>2</answer>").content == "2"
    assert read_answer(read_response(f"{thought} <answer>2</answer>")) == ("2", "")
    assert read_command(f"{thought} <action>go</action>", bare=False) == "go"
    assert read_response(f"{thought}{CALL}").calls[0].arguments == {"command": "look"}
    assert question_of(f"{thought} <interact>Red?</interact>") == "Red?"
    assert split_thoughts("a</think>b") == ("a", "b")
