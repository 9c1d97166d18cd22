"""What starter models of real text are made of: a byte-level BPE with a ChatML template, and sizes for `small_qwen3`.

The tokenizer is trained on an environment's own text. Byte-level, it encodes every text and decodes it unchanged. Its
merges run over spaces (as SuperBPE's, arXiv 2503.13423), so that a paper's fixed sentences become a few tokens and
the forward pass is spent on what changes; what has to be copied from a prompt into an action (``kept``) is set apart
first and has the same ids wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, START_OF_TURN, END_OF_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (PAD, START_OF_TURN, END_OF_TURN)
#: Bytes, which no vocabulary may lack.
BYTES = 256

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}"
    "{{ '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def kept_apart(names: Sequence[str]) -> str:
    """Return the pattern of what merges do not cross: names, numbers, tags, line ends and the marks of a list."""
    alternatives = "|".join(re.escape(name) for name in names)
    return rf" ?\b(?:{alternatives})\b| ?[0-9]+|</\w+>\s*<\w+>|</?\w+>|', '|\n"


def phrase_tokenizer(texts: Iterable[str], kept: str, vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE whose merges run over spaces, but not into or out of what ``kept`` matches.

    Args:
        texts: what it is trained on: prompts and responses as they are read and written.
        kept: regular expression (`kept_apart`).
        vocabulary: ids at most, special tokens and all 256 bytes included.
        max_tokens: context length.
    """
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(kept), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END_OF_TURN,
        additional_special_tokens=[START_OF_TURN],
        padding_side="right",
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
