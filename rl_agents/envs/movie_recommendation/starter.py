"""The small starter model of MovieRecommendation: its words, its weights before training, and what it is taught.

It plays a smaller session than the paper's: three attributes, five seen and four unseen movies whose scores always
add up to the same, weights of 0, 0.5 or 1. Each movie and each estimate is one token.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rl_agents.envs.movie_recommendation.demonstrator import demonstrate_spare
from rl_agents.envs.movie_recommendation.prompts import (
    FINAL_TURN,
    NOT_A_QUESTION,
    NOT_A_VECTOR,
    UNKNOWN_MOVIE,
    movie_name,
)
from rl_agents.envs.movie_recommendation.tasks import STARTER_SIZE
from rl_agents.envs.preferences import Movie, shown_vector
from rl_agents.envs.small_model import IMITATION, small_qwen3, sum_parts, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.tags import MALFORMED_REASONS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 256
TAGS = ("think", "interact", "answer")


def movie_words() -> list[str]:
    """Return the name of every movie that a session of the starter's size may hold."""
    top = STARTER_SIZE.score_levels - 1
    scores = itertools.product(range(top + 1), repeat=STARTER_SIZE.attributes)
    total = STARTER_SIZE.attributes * top // 2
    return [movie_name(Movie("", levels), STARTER_SIZE, "compact") for levels in scores if sum(levels) == total]


def estimate_words() -> list[str]:
    """Return every estimate in whole levels."""
    vectors = itertools.product(range(STARTER_SIZE.weight_levels), repeat=STARTER_SIZE.attributes)
    return [shown_vector(vector, STARTER_SIZE.weight_levels) for vector in vectors]


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    problems = [*MALFORMED_REASONS, NOT_A_QUESTION, NOT_A_VECTOR, UNKNOWN_MOVIE, FINAL_TURN]
    prompts = ["seen", "best", "yes", "no", "equal", "invalid", "correct", "wrong"]
    return [*prompts, *problems, *movie_words(), *estimate_words()]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of movies and estimates composed."""
    return small_qwen3(tokenizer, seed, compose_embeddings=partial(sum_parts, parts=_parts))


def _parts(word: str) -> list[str]:
    """Split a movie into its scores, an estimate into its weights, each with the attribute that it belongs to."""
    for separator, kind in (("/", "score"), (",", "weight")):
        if separator in word and word[0].isdigit():
            return [f"{kind} {i} is {number}" for i, number in enumerate(word.split(separator))]
    return []


#: Three times the default's steps: the pool of sessions has no end, and what several answers imply is learned late.
TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 60}

#: What runs with this model need: the smaller session in the compact style.
DEFAULTS: Mapping[str, Any] = {
    **{f"env.{key}": value for key, value in asdict(STARTER_SIZE).items()},
    "env.prompt": "compact",
    "max_model_len": 128,
    "max_response_tokens": 12,
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
