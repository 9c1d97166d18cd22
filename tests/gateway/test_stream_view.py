"""What a client sees of an answer, piece by piece and as a whole."""

import pytest
from gateway.models import ADD, letters, tokenizer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rl_agents.chat.template import ChatTemplate
from rl_agents.chat.tool_parsing import ResponseParser, _family_reader
from rl_agents.gateway.stream_view import StreamView
from rl_agents.web.text import TextStream

TEMPLATE = ChatTemplate(tokenizer())
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
ANALYSIS, FINAL = "<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"
#: text, tools offered, inside a thought -> content, thoughts, number of calls
CASES = [
    ("<think>a<b</think>\n\nword", False, False, "\n\nword", "a<b", 0),
    ("a thought</think>word", False, True, "word", "a thought", 0),
    ("<think>never ends", True, False, "", "never ends", 0),
    (f"  first {CALL} then {CALL}", True, False, "first  then", "", 2),
    (f"<think>hm</think>\n{CALL}", True, False, "", "hm", 1), (CALL, False, False, CALL, "", 0),
    ("<tool_call>{broken", True, False, "<tool_call>{broken", "", 0),
    ('{"name": "add", "arguments": {}}', True, False, "", "", 1), ('{"a": 1}', True, False, '{"a": 1}', "", 0),
]  # fmt: skip


def show(text, offered, inside, sizes, stop=()):
    prompt = TEMPLATE.chat_ids([{"role": "user", "content": "x"}]) + (letters("<think>\n") if inside else [])
    shown, ids, parts = StreamView.of(TEMPLATE, prompt, stop, [ADD] if offered else []), letters(text), []
    while ids:
        size = sizes[len(parts) % len(sizes)]
        parts.append(shown.add(ids[:size], last=size >= len(ids)))
        ids = ids[size:]
    return shown, "".join(content for content, _ in parts), "".join(thoughts for _, thoughts in parts)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
@settings(deadline=None, max_examples=12)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_pieces_of_any_size_add_up_to_the_answer(case, sizes):
    text, offered, inside, content, thoughts, calls = case
    shown, said, thought = show(text, offered, inside, sizes)
    assert (shown.content, shown.thoughts, len(shown.calls)) == (content, thoughts, calls)
    assert (said, thought) == (content, thoughts)
    assert bool(shown.problem) == (text in ("<tool_call>{broken",))


@settings(deadline=None, max_examples=50)
@given(
    text=st.text(st.sampled_from("ab 1🙂"), max_size=20), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    stop=st.text(st.sampled_from("ab 1🙂"), min_size=1, max_size=3),
)  # fmt: skip
@example(text="  1", sizes=[1], stop=" ")
def test_a_stop_string_ends_the_text_before_it_however_the_tokens_arrive(text, sizes, stop):
    shown, said, _ = show(text, False, False, sizes, (stop,))
    before, found, _ = text.partition(stop)
    assert said == shown.content == before and shown.stopped_by == found
    assert TEMPLATE.decode(letters(text)[: shown.tokens]) == before + found


WHOLE = {"openai_gptoss": f"{ANALYSIS}x END y<|end|>{FINAL}one ", "think": "<think>x END y</think>one "}


@pytest.mark.parametrize("name", WHOLE)
def test_a_stop_string_inside_a_thought_is_none_for_parsers_of_whole_answers_too(name):
    parser = ResponseParser("x", name, (), frozenset(), _family_reader((), name), whole=True)
    text = WHOLE[name]
    shown = StreamView(TextStream(TEMPLATE.decode), [], parser, stop=("END",))
    for token in letters(text + "END two"):
        shown.add([token])
    assert (shown.content.strip(), shown.thoughts, shown.stopped_by) == ("one", "x END y", "END")
    assert TEMPLATE.decode(letters(text + "END two")[: shown.tokens]) == text + "END"


def test_text_before_a_call_does_not_wait_and_stop_strings_end_it():
    shown = StreamView.of(TEMPLATE, [1], (), [ADD])
    assert shown.add(letters("I will add. <tool"))[0] == "I will add."
    assert shown.add(letters("_call>"))[0] == ""
    shown, said, _ = show("<think>a</think>one STOP two", False, False, [3], ("STOP",))
    assert said == shown.content == "one " and shown.stopped_by == "STOP"
