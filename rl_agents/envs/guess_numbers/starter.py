"""The small starter model of GuessNumbers: its words, its weights before training, and what it is taught.

A general language model plays a little before reinforcement learning starts. This 0.1 M parameter model has to be
brought there first: it imitates the `demonstrator`. Each number and each feedback is one token.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rl_agents.envs.guess_numbers.demonstrator import Demonstrator, demonstrate
from rl_agents.envs.guess_numbers.rules import SUBGROUPS, codes, feedback_word
from rl_agents.envs.guess_numbers.tasks import task_ids

PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT = "<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"
SPECIAL_TOKENS = (PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT)

# Words are separated by spaces, which the tokenizer ignores, so turns rendered one by one give the same ids as a
# whole dialogue. Only the assistant's turns end with the end-of-turn token: it is the one the model has to produce.
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant>"
    "{% generation %} {{ message['content'] }} <end>{% endgeneration %} "
    "{% else %}<{{ message['role'] }}> {{ message['content'] }} {% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

INIT_STD = 0.1


def vocabulary() -> list[str]:
    """Return every word: special tokens, tags, the words of the compact prompts, feedback, and all numbers."""
    tags = [f"<{slash}{name}>" for name in ("think", "interact", "answer") for slash in ("", "/")]
    words = ["of", ":", "3", "4", "5", "yes", "no", "invalid", "no-action", "several-actions", "not-a-code", "correct", "wrong"]
    longest = max(group.a for group in SUBGROUPS)
    feedbacks = [feedback_word((x, y)) for x in range(longest + 1) for y in range(longest + 1 - x)]
    games = sorted({(group.a, group.b) for group in SUBGROUPS})
    numbers = sorted({code for a, b in games for code in codes(a, b)}, key=lambda code: (len(code), code))
    return [*SPECIAL_TOKENS, *tags, *words, *feedbacks, *numbers]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary())}, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"</?(?:think|interact|answer)>"), "isolated"), pre_tokenizers.WhitespaceSplit()]
    )
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END_OF_TURN,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        padding_side="right",
        model_max_length=512,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int, layers: int = 2, heads: int = 4, d: int = 64, ff: int = 128, structured: str = "std", theta: float = 1000.0) -> Qwen2ForCausalLM:
    """Build the untrained model: weights with standard deviation 0.1, number and feedback embeddings composed.

    Transformers' default of 0.02 leaves a model this narrow on a plateau.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=d,
        intermediate_size=ff,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        initializer_range=INIT_STD,
        tie_word_embeddings=True,
        attention_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
        if structured != "none":
            _compose_embeddings(model.get_input_embeddings().weight, tokenizer.get_vocab(), structured)
    return model


def _parts(word: str) -> list[str]:
    """Split a number into (position, digit) parts and a feedback word into its two counts; other words have none."""
    if re.fullmatch(r"[1-9]{2,}", word):
        return [f"{len(word)}:{position}={digit}" for position, digit in enumerate(word)]
    if re.fullmatch(r"\dA\dB", word):
        return [f"A={word[0]}", f"B={word[2]}"]
    return []


@torch.no_grad()
def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int], mode: str) -> None:
    """Overwrite the rows of numbers and feedback words by sums of shared part vectors.

    What the model learns about one number then holds for every number with the same digit in the same position.
    """
    parts: dict[str, torch.Tensor] = {}
    width = weight.shape[1]
    for word, index in sorted(vocab.items(), key=lambda item: item[1]):
        names = [n[2:] if mode != "len" and n[1] == ":" else n for n in _parts(word)]
        for name in names:
            parts.setdefault(name, torch.randn(width) * INIT_STD)
            if mode == "digit" and name[1] == "=" and name[0] in "0123":
                parts.setdefault("d" + name[2], torch.randn(width) * INIT_STD)
        if names:
            s = torch.stack([parts[name] for name in names]).sum(0)
            if mode == "digit" and names[0][0] in "0123":
                s = s + torch.stack([parts["d" + n[2]] for n in names]).sum(0)
            if mode == "mix":
                weight[index] += s / len(names) ** 0.5
            else:
              weight[index] = s / len(names) ** 0.5 if mode != "big" else s
