"""The small starter model of GuessNumbers: its words, its weights before training, and what it is taught.

A general language model plays a little before reinforcement learning starts. This 0.1 M parameter model has to be
brought there first: it imitates the `demonstrator`. Each number and each feedback is one token, and ``<think>`` lists
the remaining candidates (at most nine after the first feedback), so each turn only has to thin out the last list.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rl_agents.envs.base import StarterRecipe
from rl_agents.envs.guess_numbers.demonstrator import Dialogue, demonstrate
from rl_agents.envs.guess_numbers.rules import SUBGROUPS, codes, feedback_word

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


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model: weights with standard deviation 0.1, number and feedback embeddings composed.

    Qwen3 and not Qwen2, because `AutoTokenizer` puts Qwen2's own tokenizer in the place of any other that lies beside
    a Qwen2 model. Transformers' default of 0.02 leaves a model this narrow on a plateau. Four heads of width 16
    in place of two of width 32 did clearly worse after the same number of steps.
    """
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,  # the narrowest that vLLM's CPU attention knows
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
        model = Qwen3ForCausalLM(config)
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


#: Hyper-parameters of the imitation. Muon on hidden matrices and the embeddings' high rate do most of the work.
TRAINING: Mapping[str, Any] = {
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

#: What runs with this model need: it reads the compact prompts only, and its longest turn lists nine candidates.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "max_model_len": 256,
    "max_response_tokens": 24,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 256,
    "eval_interval": 20,
}


def demonstrate_task(task_id: str, rng: random.Random, **options: Any) -> Dialogue:
    """Let the mediocre demonstrator play ``task_id``; it writes in the compact style whatever ``options`` say."""
    return demonstrate(task_id, rng)


STARTER = StarterRecipe(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate_task,
    training=TRAINING,
    defaults=DEFAULTS,
)
