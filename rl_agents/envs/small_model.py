"""The parts of warm-start models: tokenizers with a chat template, and an untrained Qwen3.

Qwen3 and not Qwen2, because `AutoTokenizer` replaces any tokenizer next to a Qwen2 model with Qwen2's own.
Transformers' default standard deviation of the weights, 0.02, leaves such a narrow model on a plateau.

One tokenizer has a token per word. The other, for real text, is a byte-level BPE trained on an environment's own text;
it encodes every text and decodes it unchanged. Its merges cross spaces (as SuperBPE's, arXiv 2503.13423), so that a
paper's fixed sentences become a few tokens, and most computation is for the parts that change. Texts that are copied
from a prompt into an action (``kept``) are split off first, so that they always have the same ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from rl_agents.startup import leave_out_sklearn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM


PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT = "<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"
SPECIAL_TOKENS = (PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT)
INIT_STD = 0.1

# Words are separated by spaces, which the tokenizer ignores, so turns that are rendered one by one have the same ids as
# a whole dialogue. Only the assistant's turns end with the end-of-turn token, because only the model samples it.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant> "
    "{% generation %}{{ message['content'] | trim }} <end>{% endgeneration %} "
    "{% else %}<{{ message['role'] }}> {{ message['content'] }} {% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
#: For models that call tools: they know those of their environment, whose definitions are a blank, so it has no token.
TOOL_TEMPLATE = "{% if tools %} {% endif %}" + CHAT_TEMPLATE.replace(
    "<{{ message['role'] }}>", "<{{ 'user' if message['role'] == 'tool' else message['role'] }}>"
)


def word_tokenizer(words: Sequence[str], tags: Sequence[str], max_tokens: int) -> PreTrainedTokenizerFast:
    """Build a tokenizer with one token per word; unknown words become ``<unk>``.

    Args:
        words: the vocabulary without special tokens and tags; each without white space.
        tags: tag names, such as ``think``; their tokens need no spaces around them.
        max_tokens: context length.
    """
    vocabulary = [*SPECIAL_TOKENS, *(f"<{slash}{tag}>" for tag in tags for slash in ("", "/")), *words]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    pattern = rf"</?(?:{'|'.join(re.escape(tag) for tag in tags)})>"
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*([pre_tokenizers.Split(Regex(pattern), "isolated")] if tags else []), pre_tokenizers.WhitespaceSplit()]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return chat_tokenizer(
        backend, TOOL_TEMPLATE if "tool_call" in tags else CHAT_TEMPLATE, max_tokens, pad_token=PAD, unk_token=UNKNOWN,
        eos_token=END_OF_TURN, additional_special_tokens=[SYSTEM, USER, ASSISTANT],
    )  # fmt: skip


def chat_tokenizer(backend: Tokenizer, template: str, max_tokens: int, **tokens: Any) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer for transformers, with a chat template; ``tokens`` are the special ones."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        padding_side="right",
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
        **tokens,
    )
    tokenizer.chat_template = template
    return tokenizer


def small_qwen3(
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    *,
    hidden_size: int = 64,
    layers: int = 2,
    heads: int = 2,
    rope_theta: float = 1000.0,
    init_std: float = INIT_STD,
    compose_embeddings: Callable[[torch.Tensor, Mapping[str, int]], None] | None = None,
) -> Qwen3ForCausalLM:
    """Build an untrained model with tied embeddings.

    Args:
        tokenizer: has vocabulary size, special ids and context length.
        seed: of the weights; the caller's random state does not change.
        heads: attention heads, each 32 wide, the smallest size that vLLM's CPU attention supports.
        init_std: standard deviation of the weights.
        compose_embeddings: called with the embedding matrix (vocabulary, hidden) and the vocabulary, to overwrite rows
            in place, so that words with common parts are learned together.
    """
    leave_out_sklearn()
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=32,
        max_position_embeddings=tokenizer.model_max_length,
        rope_parameters={"rope_type": "default", "rope_theta": rope_theta},
        initializer_range=init_std,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
        if compose_embeddings is not None:
            with torch.no_grad():
                compose_embeddings(model.get_input_embeddings().weight, tokenizer.get_vocab())
    return model


def sum_parts(
    weight: torch.Tensor,
    vocab: Mapping[str, int],
    parts: Callable[[str], Sequence[str]],
    terms: Callable[[str], int] | None = None,
) -> None:
    """Overwrite the rows of words that have parts: e(word) = Σ_part v(part) / sqrt(terms), v drawn once per part.

    Words with a common part are then learned together.

    Args:
        weight: the embedding matrix, (vocabulary, hidden).
        parts: word -> the names of its parts; the row of a word without parts does not change.
        terms: word -> the number of terms; by default the number of its parts.
    """
    vectors: dict[str, torch.Tensor] = {}
    for word, index in sorted(vocab.items(), key=lambda item: item[1]):
        names = parts(word)
        for name in names:
            if name not in vectors:
                vectors[name] = torch.randn(weight.shape[1]) * INIT_STD
        if names:
            count = terms(word) if terms else len(names)
            weight[index] = torch.stack([vectors[name] for name in names]).sum(0) / count**0.5


#: Hyper-parameters of the imitation. Muon on hidden matrices and the embeddings' high learning rate matter most.
IMITATION: Mapping[str, Any] = {
    "iterations": 22,
    "minibatches": 20,
    "tasks_per_iteration": 1280,
    "group_size": 1,
    "demonstrations": 8192,
    "optimizer": "muon",
    "muon_lr": 0.02,
    "lr": 5e-3,
    "betas": [0.9, 0.98],
    "lr_warmup": 20,
    "lr_decay": 0.5,
    "tokens_per_microbatch": 1024,
}


TEXT_PAD, TURN, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHATML = (
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
    """Return the pattern of texts that merges do not cross: names, numbers, tags, line ends and list separators."""
    alternatives = "|".join(re.escape(name) for name in names)
    return rf" ?\b(?:{alternatives})\b| ?[0-9]+|</\w+>\s*<\w+>|</?\w+>|', '|\n"


def phrase_tokenizer(texts: Iterable[str], kept: str, vocabulary: int, max_tokens: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE whose merges cross spaces, but not the borders of matches of ``kept``.

    Args:
        texts: prompts and responses for its training.
        kept: regular expression (`kept_apart`).
        vocabulary: maximal number of ids, including special tokens and all 256 bytes.
        max_tokens: context length.
    """
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(kept), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in (TEXT_PAD, TURN, TURN_END)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return chat_tokenizer(
        backend, CHATML, max_tokens, pad_token=TEXT_PAD, eos_token=TURN_END, additional_special_tokens=[TURN]
    )
