"""The small starter model of PreferenceEstimation: its words, its weights before training, and what it is taught.

It plays a smaller task than the paper's: three attributes, six levels and movies whose scores always add up to the
same, with a higher threshold, because among vectors this short half have a cosine above 0.88 with equal weights. It
imitates the `demonstrator`. A movie is one
token and an estimate is one, so every turn has the same length.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rl_agents.envs.preference_estimation.demonstrator import demonstrate_spare
from rl_agents.envs.preference_estimation.prompts import (
    NOT_A_QUESTION,
    NOT_A_VECTOR,
    SAME_MOVIE,
    UNKNOWN_MOVIE,
)
from rl_agents.envs.preference_estimation.tasks import STARTER_SETTING
from rl_agents.envs.small_model import IMITATION, INIT_STD, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.tags import MALFORMED_REASONS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 512
TAGS = ("interact", "answer")


def vector_words(separator: str) -> list[str]:
    """Return every vector of levels: scores with ``/`` between the levels, estimates with commas."""
    vectors = itertools.product(range(STARTER_SETTING.levels), repeat=STARTER_SETTING.attributes)
    return [separator.join(map(str, vector)) for vector in vectors]


def words() -> list[str]:
    """Return every word but special tokens and tags: those of the compact prompts, scores, and estimates."""
    problems = [*MALFORMED_REASONS, NOT_A_QUESTION, NOT_A_VECTOR, UNKNOWN_MOVIE, SAME_MOVIE]
    prompts = [">", "=", "invalid", "correct", "wrong"]
    return [*prompts, *problems, *vector_words("/"), *vector_words(",")]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of scores and estimates composed."""
    return small_qwen3(tokenizer, seed, compose_embeddings=_compose_embeddings)


def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of scores and estimates by sums of one vector per (attribute, level).

    What the model learns about a level then holds for every movie, or every estimate, that has it. A level's vector is
    the one below and a step, so that differences of levels are differences of vectors.
    """
    attributes = STARTER_SETTING.attributes
    for separator in "/,":
        steps = torch.randn(attributes, STARTER_SETTING.levels, weight.shape[1]) * INIT_STD
        parts = steps.cumsum(1) * (2 / STARTER_SETTING.levels) ** 0.5
        for word in vector_words(separator):
            levels = torch.tensor([int(level) for level in word.split(separator)])
            weight[vocab[word]] = parts[torch.arange(attributes), levels].sum(0) / attributes**0.5


#: Smaller batches than the default's: the tokens of these short episodes are few, and steps are what counts.
TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 60, "tasks_per_iteration": 640}

#: What runs with this model need: it reads the compact prompts of its own small tasks only.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "env.attributes": STARTER_SETTING.attributes,
    "env.levels": STARTER_SETTING.levels,
    "env.sampling": STARTER_SETTING.sampling,
    "env.threshold": 0.95,
    "max_model_len": 256,
    "max_response_tokens": 8,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 300,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate_spare,
    training=TRAINING,
    defaults=DEFAULTS,
    version=3,
)
