"""The small starter model of CircuitDecoding: its words, its weights before training, and what it is taught.

It imitates the `demonstrator`. Each circuit and each input is one token, and ``<think>`` lists the surviving
candidates, so each turn only has to thin out the last list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rl_agents.envs.circuit_decoding.demonstrator import demonstrate
from rl_agents.envs.circuit_decoding.rules import INPUTS, LABELS, functions
from rl_agents.envs.small_model import IMITATION, INIT_STD, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 1024
TAGS = ("think", "interact", "answer")


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, inputs, and truth tables."""
    prompts = [":", *LABELS, "0", "1", "invalid", "no-action", "several-actions", "not-a-query", "unknown-circuit"]
    return [*prompts, "correct", "wrong", *INPUTS, *functions()]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of circuits composed of their outputs."""
    return small_qwen3(tokenizer, seed, compose_embeddings=compose_embeddings)


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of truth tables by sums of one vector per (input, output).

    What the model learns about an input's output then holds for every circuit.
    """
    parts = torch.randn(len(INPUTS), 2, weight.shape[1]) * INIT_STD
    for table in functions():
        outputs = torch.tensor([int(value) for value in table])
        weight[vocab[table]] = parts[torch.arange(len(INPUTS)), outputs].sum(0) / len(INPUTS) ** 0.5


#: A quarter of the default's batch and three times its steps: here the number of steps is what counts.
TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 60, "tasks_per_iteration": 320, "demonstrations": 5000}

#: What runs with this model need: it reads the compact prompts only.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "max_model_len": 320,
    "max_response_tokens": 32,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 300,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training=TRAINING,
    defaults=DEFAULTS,
    version=2,
)
