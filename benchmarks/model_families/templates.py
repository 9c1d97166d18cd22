"""Chat templates in the styles of the families: short forms of the published ones, with their peculiarities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from rl_agents.chat.template import ChatTemplate
from rl_agents.errors import InputError

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
)
#: Thoughts are removed from every answer except the last.
QWEN3 = CHATML.replace(
    "{{ m.content }}",
    "{% if m.role == 'assistant' and not loop.last and '</think>' in m.content %}"
    "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ m.content }}{% endif %}",
)
LLAMA3 = (
    "<|begin_of_text|>{% if tools %}<|start_header_id|>system<|end_header_id|>\n\n{% for tool in tools %}"
    "{{ tool | tojson }}{% endfor %}<|eot_id|>{% endif %}{% for m in messages %}<|start_header_id|>"
    "{{ 'ipython' if m.role == 'tool' else m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "<s>{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}{% for m in messages %}"
    "{% if m.role == 'assistant' %}{{ m.content }}</s>{% elif m.role == 'tool' %}[TOOL_RESULTS]{{ m.content }}"
    "[/TOOL_RESULTS]{% else %}[INST]{{ m.content }}[/INST]{% endif %}{% endfor %}"
)
#: No system turn, and roles must alternate.
GEMMA = (
    "<bos>{% set first = messages[0].content + '\n\n' if messages[0].role == 'system' else '' %}"
    "{% for m in messages if m.role != 'system' %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ first if loop.first else '' }}"
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% else %}<|endoftext|>{% endif %}"
)
#: A turn ends only where the next one begins.
GLM = (
    "[gMASK]<sop>{% if tools %}<|system|>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ 'observation' if m.role == 'tool' else m.role }}|>\n{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
DEEPSEEK = (
    "<bos>{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}{% elif m.role == 'assistant' %}"
    "<|Assistant|>{{ m.content.split('</think>')[-1] }}<|end_of_sentence|>{% else %}{{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)


@dataclass(frozen=True)
class Style:
    """A template, its special tokens (padding first), and the token that ends a text."""

    template: str
    special: tuple[str, ...]
    eos: str


IM = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
STYLES: Mapping[str, Style] = {
    "chatml": Style(CHATML, IM, "<|im_end|>"),
    "qwen2": Style(QWEN_TOOLS + CHATML, IM, "<|im_end|>"),
    "qwen3": Style(QWEN_TOOLS + QWEN3, IM, "<|im_end|>"),
    "llama3": Style(
        LLAMA3, ("<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        "<|eot_id|>",
    ),
    "mistral": Style(MISTRAL, ("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                               "[TOOL_RESULTS]", "[/TOOL_RESULTS]"), "</s>"),
    "gemma": Style(GEMMA, ("<pad>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"), "<eos>"),
    "phi": Style(PHI, ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"), "<|endoftext|>"),
    "glm": Style(GLM, ("<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>",
                       "<|observation|>"), "<|endoftext|>"),
    "deepseek": Style(DEEPSEEK, ("<pad>", "<bos>", "<|User|>", "<|Assistant|>", "<|end_of_sentence|>"),
                      "<|end_of_sentence|>"),
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}
CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": {}}}
#: A byte-level vocabulary of this many tokens, special ones included.
VOCABULARY = 311


@cache
def tokenizer(style: str) -> Any:
    """Return a byte-level tokenizer with a family's template; vocabularies differ only in special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    chosen = STYLES[style]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = [*chosen.special, *alphabet]
    words += [f"<|reserved_{number}|>" for number in range(VOCABULARY - len(words))]
    backend = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(list(chosen.special))
    found = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=chosen.eos, pad_token=chosen.special[0])
    found.chat_template = chosen.template
    return found


def dialogue(style: str) -> str:
    """Return which parts of a dialogue a template supports: growing prompts, system messages, tools and their results.

    Raises:
        InputError: it cannot render the turns.
        AssertionError: a growing prompt differs from the rendered dialogue.
    """
    template = ChatTemplate(tokenizer(style))
    user, answer, more = ({"role": role, "content": text} for role, text in TURNS)
    first, whole = template.chat_ids([user]), template.chat_ids([user, answer, more])
    grown = [*first, *template.answer_ids(str(answer["content"])), *template.between("go on")]
    said = ["grows exactly"] if drop_thought(template, grown) == drop_thought(template, whole) else []
    assert said, f"{style}: {template.decode(grown)!r} is not {template.decode(whole)!r}"
    tries = {
        "system": lambda: template.chat_ids([{"role": "system", "content": "Be kind."}, user]),
        "tools": lambda: template.chat_ids([user], [TOOL]),
        "results": lambda: template.between_messages(
            [{"role": "tool", "content": "7", "tool_call_id": "call00001"}], [CALL]
        ),
    }
    for name, attempt in tries.items():
        try:
            attempt()
            said.append(name)
        except InputError:
            said.append(f"no {name}")
    return ", ".join(said)


TURNS = (("user", "task"), ("assistant", "box"), ("user", "go on"))


def drop_thought(template: ChatTemplate, ids: list[int]) -> str:
    """Return a prompt as text without the opening of a thought, which some templates add for a new answer."""
    text: str = template.tokenizer.decode(ids)
    return text.replace("<think>\n", "")
