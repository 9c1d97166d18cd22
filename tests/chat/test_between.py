"""The text that templates render between two answers: tool results and several messages, in any context."""

import pytest
from chat_tokenizers import byte_level
from gateway.models import QWEN_TOOLS
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.chat.template import ChatTemplate
from rl_agents.errors import InputError

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<|"), max_size=12)
#: Llama 3.1: an answer is a text or one call, never both; results are turns of their own.
LLAMA_TOOLS = (
    "<|begin_of_text|>{% for m in messages %}{% if m.tool_calls %}"
    "<|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "{{ m.tool_calls[0].function.name }}"}<|eot_id|>'
    "{% else %}<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
#: A result is rendered with the name of its tool, which the template finds in the answer before it.
NAMED = (
    "{% for m in messages %}{% if m.role == 'tool' %}"
    "{% set calls = messages[loop.index0 - 1].tool_calls %}"
    "{% if not calls %}{{ raise_exception('no call') }}{% endif %}"
    "<|im_start|>tool {{ calls[0].function.name }}\n{{ m.content }}<|im_end|>\n"
    "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALLS = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]
SPECIAL = {
    "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "llama": ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
}


def template(style, text):
    return ChatTemplate(byte_level(SPECIAL[style], SPECIAL[style][-1], text))


TEMPLATES = {
    "qwen": template("qwen", QWEN_TOOLS),
    "llama": template("llama", LLAMA_TOOLS),
    "named": template("qwen", NAMED),
}
further = st.lists(st.tuples(st.sampled_from(["user", "tool", "system"]), words), min_size=1, max_size=4)


def message(role, text):
    return {"role": role, "content": text} | ({"tool_call_id": "c1"} if role == "tool" else {})


@pytest.mark.parametrize("style", ["qwen", "llama"])
@settings(deadline=None, max_examples=25)
@given(texts=further, calls=st.booleans())
def test_prompt_answer_and_between_are_the_whole_dialogue(style, texts, calls):
    chat = TEMPLATES[style]
    answer = {"role": "assistant", "content": "both", **({"tool_calls": CALLS} if calls else {})}
    messages = [message(role, text) for role, text in texts]
    whole = chat.chat_ids([message("user", "task"), answer, *messages])
    between = chat.between_messages(messages, CALLS if calls else ())
    first = chat.chat_ids([message("user", "task")])
    assert whole[: len(first)] == first and whole[len(whole) - len(between) :] == between
    assert whole[len(whole) - len(between) - 1] == chat.end_of_turn
    rendered = whole[len(first) : len(whole) - len(between)]
    assert rendered.count(chat.end_of_turn) == 1  # nothing but the answer lies between the two


def test_one_user_message_is_what_it_was():
    chat = TEMPLATES["qwen"]
    assert chat.between_messages([message("user", "go on")]) == list(chat.between("go on"))


def test_a_template_that_names_the_tool_finds_it_in_the_answers_calls():
    chat = TEMPLATES["named"]
    between = chat.between_messages([message("tool", "7")], CALLS)
    assert chat.tokenizer.decode(between) == "\n<|im_start|>tool add\n7<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(InputError, match="no call"):
        chat.between_messages([message("tool", "7")])


def test_mistrals_templates_get_ids_of_nine_letters():
    check = "{% if m.tool_call_id is defined and m.tool_call_id | length != 9 %}{{ raise_exception('9!') }}{% endif %}"
    chat = template("qwen", QWEN_TOOLS.replace("{% for m in messages %}", "{% for m in messages %}" + check))
    assert chat.between_messages([message("tool", "7")]) == TEMPLATES["qwen"].between_messages([message("tool", "7")])
