"""Streamed text: what is shown never changes, and it is the decoded whole."""

from chat_tokenizers import llama, qwen
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.chat.template import ChatTemplate
from rl_agents.envs.starters import word_tokenizer
from rl_agents.web.text import TextStream

TEMPLATES = [ChatTemplate(qwen()), ChatTemplate(llama())]
WORDS = word_tokenizer(["good", "bye", "now"], [], 64)
TEXTS = st.text(st.sampled_from("ab 1🙂é中\n"), max_size=20)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, template=st.sampled_from(TEMPLATES), cuts=st.lists(st.integers(1, 5)))
def test_pieces_of_any_length_add_up_to_the_decoded_answer(text: str, template: ChatTemplate, cuts: list[int]) -> None:
    ids = template.answer_ids(text)
    stream, shown, start = TextStream(template.decode), "", 0
    for cut in [*cuts, len(ids)]:
        shown += stream.add(ids[start : start + cut])
        assert text.startswith(shown)
        start += cut
    shown += stream.add([], last=True)
    assert shown == stream.text == template.decode(ids) == text


def test_half_a_character_waits_and_broken_bytes_do_not_wait_for_ever() -> None:
    template = TEMPLATES[0]
    ids = template.tokenizer.encode("a🙂", add_special_tokens=False)
    assert len(ids) == 5
    stream = TextStream(template.decode)
    assert [stream.add([token]) for token in ids] == ["a", "", "", "", "🙂"]
    broken = TextStream(template.decode)
    assert "".join(broken.add([ids[1]]) for _ in range(40)).count("\ufffd") >= 20


@given(pieces=st.lists(st.lists(st.sampled_from(["good", "bye", "now", "<pad>"]), max_size=3)))
def test_pieces_without_text_take_no_space_from_the_next_word(pieces: list[list[str]]) -> None:
    """A vLLM output may bring no new token, and special tokens are not shown."""
    template = ChatTemplate(WORDS)
    ids = [WORDS.convert_tokens_to_ids(piece) for piece in pieces]
    stream = TextStream(template.decode)
    shown = "".join(stream.add(piece) for piece in ids) + stream.add([], last=True)
    assert shown == template.decode([token for piece in ids for token in piece])
