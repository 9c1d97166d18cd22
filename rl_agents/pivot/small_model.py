"""A small untrained model for any traces: a byte-level tokenizer trained on them, a chat template with tools, a Qwen3.

It makes the way from traces to training steps walkable without a download. It knows nothing: warm it up with
``--algo sft --env pivot`` on the same turns before it is profiled.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rl_agents.envs.small_model import small_qwen3
from rl_agents.traces.turns import Turn

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CALL_TAGS = ("<tool_call>", "</tool_call>")
#: Tokens of the vocabulary, and of the context.
VOCABULARY, MAX_TOKENS = 2048, 8192

#: The form of Qwen 2.5 and 3: tools as JSON in the system message, calls as JSON between tags.
CHAT_TEMPLATE = (
    "{% if tools or messages[0].role == 'system' %}<|im_start|>system\n"
    "{% if messages and messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    "{% if tools %}\n\n# Tools\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    'Call a tool with <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>{% endif %}'
    "<|im_end|>\n{% endif %}"
    "{% for message in messages %}{% if not (loop.first and message.role == 'system') %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls or [] %}{% if message.content or not loop.first %}\n{% endif %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def trace_tokenizer(texts: Iterable[str], vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; every text has an encoding that decodes to it.

    Args:
        vocabulary: tokens in all, at least 300.
        max_tokens: context length.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(CALL_TAGS),
        special_tokens=[PAD, START, END],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    backend.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in CALL_TAGS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=END, pad_token=PAD, model_max_length=max_tokens, padding_side="right"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_small_model(turns: Sequence[Turn], output: Path, seed: int) -> int:
    """Write tokenizer and untrained model in Hugging Face layout; return the number of parameters."""
    tokenizer = trace_tokenizer(_texts(turns), VOCABULARY, MAX_TOKENS)
    model = small_qwen3(tokenizer, seed, hidden_size=64, layers=2, heads=2, rope_theta=10_000.0)
    model.save_pretrained(output, safe_serialization=True)
    tokenizer.save_pretrained(output)
    return int(model.num_parameters())


def _texts(turns: Sequence[Turn]) -> Iterator[str]:
    seen: set[str] = set()
    for turn in turns:
        tools = [json.dumps(tool.to_openai(), ensure_ascii=False) for tool in turn.tools]
        for text in (*tools, *(message["content"] for message in turn.messages), turn.text):
            if text and text not in seen:
                seen.add(text)
                yield text
