"""The small starter model of alfworld: its words, its weights before training, and what it is taught.

It reads the compact style, where a turn is about ten words, in a growing dialogue (``context=append``): all that was
seen stays in its context. Each thing of the house is one word whose embedding is composed of its type and its number,
so that what the model learns about one mug holds for every mug.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rl_agents.envs.alfworld.compact import KEPT_WORDS, VERBS
from rl_agents.envs.alfworld.demonstrator import demonstrate, demonstrate_well
from rl_agents.envs.alfworld.families import FAMILIES
from rl_agents.envs.alfworld.scenes import kinds
from rl_agents.envs.alfworld.text_starter import STEPS, text_starter
from rl_agents.envs.small_model import IMITATION, INIT_STD, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 512
#: Things of a type are numbered from 1; the generated games stay below this.
NUMBERS = range(1, 10)


def words() -> list[str]:
    """Return every word but special tokens: those of texts and commands, of tasks, and all things."""
    fixed = [*KEPT_WORDS, *VERBS, *(family.short for family in FAMILIES), ":", ">"]
    things = [f"{kind}-{number}" for kind in kinds() for number in NUMBERS]
    return list(dict.fromkeys([*fixed, *kinds(), *things]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), (), MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, embeddings of things composed."""
    return small_qwen3(tokenizer, seed, heads=4, compose_embeddings=_compose_embeddings)


def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the row of ``mug-1`` by the scaled sum of the row of ``mug`` and a vector of the number."""
    numbers = {number: torch.randn(weight.shape[1]) * INIT_STD for number in NUMBERS}
    for kind in kinds():
        for number in NUMBERS:
            weight[vocab[f"{kind}-{number}"]] = (weight[vocab[kind]] + numbers[number]) / 2**0.5


#: What runs with this model need.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "max_turns": 25,
    "max_model_len": 384,
    "max_response_tokens": 4,
    "lr": 5e-4,
    "iterations": 40,
    "eval_episodes": 140,
    "eval_interval": 10,
}

TRAINING: Mapping[str, Any] = {
    **IMITATION,
    "iterations": 12,
    "minibatches": 40,
    "tasks_per_iteration": 640,
    "demonstrations": 3072,
    "tokens_per_microbatch": 4096,
}


def for_prompt(options: Mapping[str, Any]) -> StarterSpec | None:
    """Return the starter that reads a paper's prompt, where ``prompt`` is one; None is this one."""
    return next((text_starter(prompt) for prompt in STEPS if prompt == options.get("prompt")), None)


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training=TRAINING,
    defaults=DEFAULTS,
    expert=demonstrate_well,
    variant=for_prompt,
)
