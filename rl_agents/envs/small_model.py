"""What small starter models are made of: a word-level tokenizer with a chat template, and an untrained Qwen3.

Qwen3 and not Qwen2, because `AutoTokenizer` puts Qwen2's own tokenizer in the place of any other that lies beside a
Qwen2 model. Transformers' default deviation of the weights, 0.02, leaves a model this narrow on a plateau.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers

from rl_agents.startup import leave_out_sklearn

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT = "<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"
SPECIAL_TOKENS = (PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT)
INIT_STD = 0.1

# Words are separated by spaces, which the tokenizer ignores, so turns rendered one by one give the same ids as a
# whole dialogue. Only the assistant's turns end with the end-of-turn token: it is the one the model has to produce.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant> "
    "{% generation %}{{ message['content'] | trim }} <end>{% endgeneration %} "
    "{% else %}<{{ message['role'] }}> {{ message['content'] }} {% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tag_words(names: Sequence[str]) -> list[str]:
    """Return ``<name>`` and ``</name>`` of every tag."""
    return [f"<{slash}{name}>" for name in names for slash in ("", "/")]


def word_tokenizer(words: Sequence[str], tags: Sequence[str], max_tokens: int) -> PreTrainedTokenizerFast:
    """Build a tokenizer of one token per word; words that it does not know become ``<unk>``.

    Args:
        words: the vocabulary without special tokens and tags; each without white space.
        tags: tag names, such as ``think``; their tokens need no spaces around them.
        max_tokens: context length.
    """
    from transformers import PreTrainedTokenizerFast

    vocabulary = [*SPECIAL_TOKENS, *tag_words(tags), *words]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=UNKNOWN))
    pattern = rf"</?(?:{'|'.join(re.escape(tag) for tag in tags)})>"
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [*([pre_tokenizers.Split(Regex(pattern), "isolated")] if tags else []), pre_tokenizers.WhitespaceSplit()]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END_OF_TURN,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        padding_side="right",
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
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
        tokenizer: gives vocabulary size, special ids and context length.
        seed: of the weights; the caller's random state stays as it was.
        heads: attention heads, each 32 wide, the narrowest that vLLM's CPU attention knows.
        init_std: standard deviation of the weights.
        compose_embeddings: called with the embedding matrix (vocabulary, hidden) and the vocabulary, to overwrite rows
            in place: words that share parts then share what the model learns about them.
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

    What the model learns about one word then holds for every word that shares the part.

    Args:
        weight: the embedding matrix, (vocabulary, hidden).
        parts: word -> the names of its parts; none leaves its row as it is.
        terms: word -> the number that keeps the row's size; by default that of its parts.
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


#: Hyper-parameters of the imitation. Muon on hidden matrices and the embeddings' high rate do most of the work.
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
