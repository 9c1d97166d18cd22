"""What a server accepts from clients, and a trace does not."""

from typing import Any

import pytest

from rl_agents.chat.items import messages_from_items
from rl_agents.chat.messages import Excluded, read_message

REFUSAL = [{"type": "refusal", "refusal": "No."}]
LAX_ONLY: list[tuple[dict[str, Any], str]] = [
    ({"role": "user", "content": ""}, "empty content in a user message"),
    ({"role": "system", "content": []}, "empty content in a system message"),
    ({"role": "assistant", "content": REFUSAL}, "a content part of type 'refusal'; only text is read"),
    (
        {"role": "user", "content": [{"type": "reasoning_text", "text": "Hm."}]},
        "a content part of type 'reasoning_text'",
    ),
]


@pytest.mark.parametrize(("message", "problem"), LAX_ONLY, ids=[problem for _, problem in LAX_ONLY])
def test_the_lax_reader_accepts_what_the_strict_one_refuses(message: dict[str, Any], problem: str) -> None:
    assert read_message(message, Excluded())["role"] == message["role"]
    with pytest.raises(ValueError, match=problem):
        read_message(message)


def test_a_refusal_next_to_the_content_is_text_for_the_lax_reader_only() -> None:
    message = {"role": "assistant", "content": None, "refusal": "No."}
    assert read_message(message, Excluded())["content"] == "No." and read_message(message)["content"] == ""


def test_thoughts_alone_are_a_turn_for_the_lax_reader_only() -> None:
    asked = {"role": "user", "content": "x"}
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    turn = {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    assert messages_from_items([asked, reasoning], Excluded()) == (asked, turn)
    assert messages_from_items([asked, reasoning]) == (asked,)


def test_a_message_of_thoughts_joins_the_next_one_for_the_lax_reader_only() -> None:
    items = [{"role": "assistant", "content": text} for text in ("<think>Hm.</think>", "Yes.")]
    thought = {"role": "assistant", "content": "", "reasoning_content": "Hm."}
    yes = {"role": "assistant", "content": "Yes."}
    assert messages_from_items(items) == (thought, yes)
    assert messages_from_items(items, Excluded()) == ({**yes, "reasoning_content": "Hm."},)
