import itertools
import json
import re

import pytest
from chat_tokenizers import QWEN, byte_level, llama, qwen
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.chat.template import ChatOptions, ChatTemplate, Dialogue, load_tokenizer, make_context
from rl_agents.envs.starters import word_tokenizer
from rl_agents.errors import InputError

STYLES = {"qwen": qwen, "llama": llama}
# Any text without the templates' own markers and without lone surrogates.
words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<|"), max_size=12)


def play(context, task, turns):
    """Walk a dialogue; yields every prompt. ``turns`` are (sampled ids, observation)."""
    dialogue = Dialogue.start(task)
    for response_ids, observation in turns:
        prompt = context.prompt(dialogue)
        yield prompt, response_ids
        dialogue = dialogue.after(prompt, response_ids, context.template.decode(response_ids), observation)
    yield context.prompt(dialogue), []


def dialogue_messages(task, actions, observations):
    messages = [{"role": "user", "content": task}]
    for action, observation in zip(actions, observations, strict=True):
        messages += [{"role": "assistant", "content": action}, {"role": "user", "content": observation}]
    return messages


@pytest.mark.parametrize("style", STYLES)
@settings(deadline=None, max_examples=30)
@given(task=words, turns=st.lists(st.tuples(words, words), max_size=4))
def test_append_equals_the_template_of_the_whole_dialogue(style, task, turns):
    tokenizer = STYLES[style]()
    context = make_context("append", tokenizer)
    end = context.template.end_of_turn
    if style == "llama":  # its template trims, and the sampled ids are what they are
        turns = [(action.strip(), observation) for action, observation in turns]
    sampled = [([*tokenizer.encode(action, add_special_tokens=False), end], obs) for action, obs in turns]
    *_, (last, _) = play(context, task, sampled)
    messages = dialogue_messages(task, [a for a, _ in turns], [o for _, o in turns])
    whole = tokenizer.apply_chat_template(messages, tokenize=True, add_generation_prompt=True, return_dict=False)
    assert last == whole


@pytest.mark.parametrize("style", STYLES)
@settings(deadline=None, max_examples=30)
@given(task=words, turns=st.lists(st.tuples(st.lists(st.integers(0, 339), min_size=1, max_size=8), words), max_size=4))
def test_append_prompts_extend_each_other_for_any_sampled_ids(style, task, turns):
    tokenizer = STYLES[style]()
    turns = [([i % len(tokenizer) for i in ids], observation) for ids, observation in turns]
    context = make_context("append", tokenizer)
    prompts = list(play(context, task, turns))
    for (prompt, response), (following, _) in itertools.pairwise(prompts):
        said = prompt + response
        assert following[: len(said)] == said
        closing = [] if said[-1] == context.template.end_of_turn else [context.template.end_of_turn]
        assert following[len(said) : len(said) + len(closing)] == closing


def test_what_was_sampled_stays_where_the_template_strips_it_and_text_has_other_tokens():
    tokenizer, said = qwen(strip_reasoning=True), "<think>a box</think>\ngo"
    context = make_context("append", tokenizer)
    response = [*(tokenizer.encode(letter)[0] for letter in said), context.template.end_of_turn]
    assert response[:-1] != tokenizer.encode(said)
    first, second = play(context, "task", [(response, "a room")])
    messages = dialogue_messages("task", [said], ["a room"])
    assert "think" not in tokenizer.apply_chat_template(messages, tokenize=False)
    assert second[0][len(first[0]) :][: len(response)] == response


def test_end_of_turn_and_stop_tokens():
    qwen_template, llama_template = ChatTemplate(qwen()), ChatTemplate(llama())
    assert qwen().convert_ids_to_tokens(list(qwen_template.stop_token_ids)) == ["<|im_end|>"]
    assert llama().convert_ids_to_tokens(list(llama_template.stop_token_ids)) == ["<|eot_id|>", "<|end_of_text|>"]
    assert qwen_template.decode([*qwen().encode("go , now"), qwen_template.end_of_turn]) == "go , now"


def test_window_shows_the_last_steps_only():
    tokenizer = qwen()
    context = make_context("window(2)", tokenizer)
    assert context.size is not None
    turns = [(tokenizer.encode(f"action {i}"), f"observation {i}") for i in range(4)]
    texts = [tokenizer.decode(prompt) for prompt, _ in play(context, "the task", turns)]
    assert "<|im_start|>user\nthe task<|im_end|>" in texts[0]
    assert "[Action 1] action 0" in texts[1] and "[Observation 1]" not in texts[1]
    last = texts[4]
    assert "Steps taken so far: 4. The last 2:" in last and "the task" in last
    assert (
        "[Observation 3] observation 1\n[Action 3] action 2\n[Observation 4] observation 2\n[Action 4] action 3" in last
    )
    assert "observation 0" not in last and "action 1" not in last.replace("Action 1", "")
    assert last.count("<|im_start|>user") == 1 and "[Current observation] observation 3" in last


def test_window_of_zero_steps_and_an_environments_own_format():
    context = make_context("window(0)", qwen())
    dialogue = Dialogue.start("the task").after([1], [2], "go", "a room")
    assert "[Action 1] go" not in qwen().decode(context.prompt(dialogue))
    seen = []

    def render_window(task, history, observation):
        seen.append((task, history, observation))
        return "own format"

    prompt = make_context("window(3)", qwen()).prompt(dialogue, render_window)
    assert "own format" in qwen().decode(prompt)
    assert seen == [("the task", (("the task", "go"),), "a room")]


def test_an_answer_may_follow_a_message_directly() -> None:
    form = (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}</s>"
    )
    template = ChatTemplate(byte_level(["</s>"], "</s>", form + "{% endif %}{% endfor %}"))
    assert template.decode(template.opening("go")) == "[INST] go [/INST]"


def test_a_template_without_tools_is_told_from_a_model_that_knows_none():
    asked, tools = [{"role": "user", "content": "go"}], [{"type": "function", "function": {"name": "f"}}]
    small = word_tokenizer(["go"], ["think"], 64)
    for tokenizer, advice in (
        (qwen(), "add them to the model folder's chat_templ"),
        (small, "without tools: use a pretrained model"),
    ):
        with pytest.raises(InputError, match=advice):
            ChatTemplate(tokenizer).chat_ids(asked, tools)


def test_unusable_tokenizers_are_input_errors_that_name_the_folder(tmp_path):
    with pytest.raises(InputError, match="no such model folder"):
        load_tokenizer(tmp_path / "absent")
    with pytest.raises(InputError, match=f"{tmp_path}: no tokenizer"):
        load_tokenizer(tmp_path)
    special = ["<|endoftext|>", "<|im_end|>"]
    cases = {
        None: "no chat template",
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}": "no special token ends every",
        "{% for m in messages %}{{ m.content }}{% if loop.last %}<|im_end|>{% endif %}{% endfor %}": "no special token",
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}": "omits",
        QWEN.partition("{% if add_g")[0]: re.escape(
            r"answer: end it with {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
        ),
        "{{ raise_exception('roles must alternate') }}": "chat template fails: roles must alternate",
    }
    for number, (template, message) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        byte_level(special, "<|endoftext|>", template).save_pretrained(folder)
        with pytest.raises(InputError, match=message) as caught:
            make_context("append", load_tokenizer(folder))
        assert str(folder) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"append, window\(n\)"):
        make_context("windows(3)", qwen())


def test_texts_beyond_a_context_are_counted_in_pieces_and_never_tokenized_whole(monkeypatch) -> None:
    template = ChatTemplate(qwen())
    sizes: list[int] = []
    encode = template._encode
    monkeypatch.setattr(template, "_encode", lambda text: (sizes.append(len(text)), encode(text))[1])
    assert not template.exceeds([{"content": "word " * 100}, {"content": None}], 500) and not sizes
    assert template.exceeds([{"content": "w" * 10_000_000}], 200_000)
    assert max(sizes) == 65_536 and sum(sizes) < 400_000
    assert template.opening("short") is template.opening("short")
    assert template.opening("long " * 10_000) is not template.opening("long " * 10_000)


def test_stop_tokens_are_those_of_template_tokenizer_and_generation_config(tmp_path):
    qwen().save_pretrained(tmp_path)
    ids = qwen().convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    assert ChatTemplate(load_tokenizer(tmp_path)).stop_token_ids == (ids[0],)
    for written in (ids, ids[1]):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": written}))
        assert set(ChatTemplate(load_tokenizer(tmp_path)).stop_token_ids) == set(ids)
    (tmp_path / "generation_config.json").write_text("[]")
    with pytest.raises(InputError, match=r"generation_config\.json: an object is needed"):
        load_tokenizer(tmp_path)


def test_a_templates_date_is_pinned_for_a_run():
    dated = QWEN.replace("strip_reasoning", "false").replace("You are helpful.", "{{ strftime_now('%d %b %Y') }}")
    tokenizer = byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "<|im_end|>", dated)
    template = ChatTemplate(tokenizer, ChatOptions(date="2024-07-26"))
    assert "26 Jul 2024" in tokenizer.decode(list(template.opening("hi")))
    assert "26 Jul 2024" not in tokenizer.decode(list(ChatTemplate(tokenizer).opening("hi")))
    # Llama 3.1 renders a fixed day unless one is given; later ones ask for today.
    own = "{{ date_string if date_string is defined else '1 Jan 2020' }}"
    tokenizer.chat_template = dated.replace("{{ strftime_now('%d %b %Y') }}", own)
    assert "1 Jan 2020" in tokenizer.decode(list(ChatTemplate(tokenizer).opening("hi")))
    template = ChatTemplate(tokenizer, ChatOptions(date="2024-07-26"))
    assert "26 Jul 2024" in tokenizer.decode(list(template.opening("hi")))
