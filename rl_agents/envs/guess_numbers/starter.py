"""The small starter model of GuessNumbers: its words, its weights before training, and what it is taught.

A general language model plays a little before reinforcement learning starts. This 0.1 M parameter model has to be
brought there first: it imitates the `demonstrator`. Each number and each feedback is one token, and ``<think>`` lists
the remaining candidates (at most nine after the first feedback), so each turn only has to thin out the last list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from rl_agents.envs.guess_numbers.demonstrator import Demonstrator, Dialogue, demonstrate
from rl_agents.envs.guess_numbers.rules import SUBGROUPS, codes, feedback_word
from rl_agents.envs.guess_numbers.tasks import task_ids

PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT = "<pad>", "<unk>", "<end>", "<system>", "<user>", "<assistant>"
SPECIAL_TOKENS = (PAD, UNKNOWN, END_OF_TURN, SYSTEM, USER, ASSISTANT)

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

INIT_STD = 0.1
MAX_TOKENS = 512

Messages = list[dict[str, str]]
"""One dialogue: ``role`` and ``content`` of each message."""


def vocabulary() -> list[str]:
    """Return every word: special tokens, tags, the words of the compact prompts, feedback, and all numbers."""
    tags = [f"<{slash}{name}>" for name in ("think", "interact", "answer") for slash in ("", "/")]
    words = ["of", ":", "3", "4", "5", "invalid", "no-action", "several-actions", "not-a-code", "correct", "wrong"]
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
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
    """Build the untrained model: weights with standard deviation 0.1, number and feedback embeddings composed.

    Transformers' default of 0.02 leaves a model this narrow on a plateau. Four heads of width 16
    in place of two of width 32 did clearly worse after the same number of steps.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=MAX_TOKENS,
        rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
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
        _compose_embeddings(model.get_input_embeddings().weight, tokenizer.get_vocab())
    return model


def _parts(word: str) -> list[str]:
    """Split a number into its (position, digit) pairs and its digits, a feedback word into its two counts."""
    if re.fullmatch(r"[1-9]{2,}", word):
        return [f"position {i} is {digit}" for i, digit in enumerate(word)] + [f"has {digit}" for digit in word]
    if re.fullmatch(r"\dA\dB", word):
        return [f"A is {word[0]}", f"B is {word[2]}"]
    return []


@torch.no_grad()
def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of numbers and feedback words by sums of shared part vectors.

    What the model learns about one number then holds for every number with the same digit in the same position.
    """
    parts: dict[str, torch.Tensor] = {}
    for word, index in sorted(vocab.items(), key=lambda item: item[1]):
        names = _parts(word)
        for name in names:
            if name not in parts:
                parts[name] = torch.randn(weight.shape[1]) * INIT_STD
        if names:
            scale = len(word) if word.isdigit() else len(names)
            weight[index] = torch.stack([parts[name] for name in names]).sum(0) / scale**0.5


@dataclass(frozen=True, slots=True)
class Recipe:
    """How the starter is taught: imitation of `demonstrations`, mean negative log-likelihood per assistant token.

    Attributes:
        dialogues: size of the pool of demonstrations that the steps draw from.
        steps: optimiser steps.
        batch_size: dialogues per step.
        length_grouped: a batch holds dialogues of similar length (less padding: 1.4 times faster).
        muon_lr: learning rate of `torch.optim.Muon` for the hidden matrices.
        muon_momentum: its momentum.
        muon_weight_decay: its weight decay.
        adamw_lr: learning rate of AdamW for the embeddings, norms and biases (weight decay 0).
        adamw_betas: its betas.
        max_grad_norm: gradient clipping.
        warmup_steps: steps over which both rates rise linearly.
        decay_fraction: last share of the steps, over which they fall linearly.
        final_lr_fraction: added to the factor during the fall, so that it ends here and not at zero.
    """

    dialogues: int = 8192
    steps: int = 600
    batch_size: int = 64
    length_grouped: bool = True
    muon_lr: float = 0.02
    muon_momentum: float = 0.95
    muon_weight_decay: float = 0.01
    adamw_lr: float = 5e-3
    adamw_betas: tuple[float, float] = (0.9, 0.98)
    max_grad_norm: float = 1.0
    warmup_steps: int = 20
    decay_fraction: float = 0.5
    final_lr_fraction: float = 0.02

    def lr_factor(self, step: int) -> float:
        """Return what both learning rates are multiplied with at ``step`` (from 0): linear warm-up, flat, linear."""
        warmup = min(1.0, (step + 1) / self.warmup_steps)
        left = 1.0 - step / self.steps
        return warmup * min(1.0, left / self.decay_fraction + self.final_lr_fraction)


@dataclass(frozen=True, slots=True)
class Starter:
    """All that is needed to bring the small model to where reinforcement learning can begin.

    Attributes:
        env_options: options of the environment that the starter understands.
        recipe: hyper-parameters of the imitation.
        habits: the demonstrator's.
    """

    env_options: Mapping[str, Any] = field(default_factory=lambda: {"prompt": "compact", "subgroups": "all"})
    recipe: Recipe = field(default_factory=Recipe)
    habits: Demonstrator = field(default_factory=Demonstrator)

    def build_tokenizer(self) -> PreTrainedTokenizerFast:
        """See `build_tokenizer`."""
        return build_tokenizer()

    def build_model(self, tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen2ForCausalLM:
        """See `build_model`."""
        return build_model(tokenizer, seed)

    def demonstrations(self, n: int, rng: random.Random) -> list[Messages]:
        """Return ``n`` dialogues on train tasks of the starter's sub-groups, ready for the chat template."""
        ids = task_ids("train", subgroups=self.env_options["subgroups"])
        return [_messages(demonstrate(rng.choice(ids), rng, self.habits)) for _ in range(n)]


def _messages(dialogue: Dialogue) -> Messages:
    turns = (({"role": "user", "content": o}, {"role": "assistant", "content": a}) for o, a in dialogue)
    return [message for turn in turns for message in turn]


STARTER = Starter()
