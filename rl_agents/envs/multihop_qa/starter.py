"""The small starter model of multihop_qa: its words, its weights before training, and what it is taught.

It imitates the `demonstrator` in the small worlds, where every name, year and relation is one word, and so one token.
What it writes is copied from the question and from the results: two layers are enough for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rl_agents.envs.multihop_qa.demonstrator import CALL_BEGIN, CALL_END, QUESTIONS, demonstrate, demonstrate_well
from rl_agents.envs.multihop_qa.prompts import COMPACT_ANSWER_NOW
from rl_agents.envs.multihop_qa.world import ASIDES, RELATIONS, SIZES
from rl_agents.envs.small_model import IMITATION, INIT_STD, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 512
TAGS = ("answer", "tool_call", "tool_response")


def words() -> list[str]:
    """Return every word but special tokens and tags: those of questions, results and calls, and all names."""
    forms = ["first", "?", ";", "nothing", "invalid", "error:", "correct", "wrong", COMPACT_ANSWER_NOW]
    relations = [*(relation.name for relation in RELATIONS), *(aside for aside, *_ in ASIDES)]
    names = [name for pool in SIZES[QUESTIONS].names.values() for name in pool]
    return list(dict.fromkeys([*forms, CALL_BEGIN, CALL_END, *relations, *names]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of years in their order."""
    return small_qwen3(tokenizer, seed, compose_embeddings=compose_embeddings)


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of years: each is the one before and a step, so that later means further along."""
    years = SIZES[QUESTIONS].names["year"]
    steps = torch.randn(len(years), weight.shape[1]) * INIT_STD
    weight[[vocab[year] for year in years]] = steps.cumsum(0) * (2 / len(years)) ** 0.5


TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 30, "tasks_per_iteration": 640, "demonstrations": 8192}

#: What runs with this model need: it reads the compact prompts of the small worlds only.
DEFAULTS: Mapping[str, Any] = {
    "env.questions": QUESTIONS,
    "env.prompt": "compact",
    "max_model_len": 256,
    "max_response_tokens": 14,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 400,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training=TRAINING,
    defaults=DEFAULTS,
    expert=demonstrate_well,
)
