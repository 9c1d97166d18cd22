"""Byte-level tokenizers with the chat templates of two model families, trained on a few lines."""

from functools import cache

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "you are in a room with a box",
    "go to the box and open it",
    "guess a number: 123 answer 0A3B",
    "<think></think>",
]

# Qwen 2 and 3: a newline after the end of turn, a default system message, and reasoning that is cut from every
# answer but the last.
QWEN = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are helpful.<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% set text = m.content %}"
    "{% if m.role == 'assistant' and not loop.last and strip_reasoning %}"
    "{% set text = text.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Llama 3: begins with a beginning-of-text token, ends turns without a newline, trims, and has another eos.
LLAMA = (
    "<|begin_of_text|>{% for m in messages %}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def byte_level(special: list[str], eos: str, template: str | None) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE; every text has an encoding."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=340, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(LINES * 4, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=eos, pad_token=special[0])
    tokenizer.chat_template = template
    return tokenizer


@cache
def qwen(strip_reasoning: bool = False) -> PreTrainedTokenizerFast:
    """A tokenizer in the style of Qwen."""
    template = QWEN.replace("strip_reasoning", "true" if strip_reasoning else "false")
    return byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], "<|im_end|>", template)


@cache
def llama() -> PreTrainedTokenizerFast:
    """A tokenizer in the style of Llama 3."""
    special = ["<|end_of_text|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    return byte_level(special, "<|end_of_text|>", LLAMA)
