"""The small starter model of long_form_qa: its words, its weights before training, and what it is taught.

It reads the almanac in the compact style, three words a fact, one passage a search, and writes calls of the search tool
as a few words that are JSON together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_agents.envs.long_form_qa.almanac import ASPECTS, TOWNS, value_word
from rl_agents.envs.long_form_qa.demonstrator import demonstrate
from rl_agents.envs.long_form_qa.prompts import INVALID, NOTHING
from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 256
TAGS = ("think", "answer", "tool_call", "tool_response")
CALL_BEGIN, CALL_END = '{"name":"search","arguments":{"query":"', '"}}'


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    values = [value_word(aspect, value) for aspect in ASPECTS for value in aspect.values]
    prompts = ["question", ":", ".", INVALID, NOTHING, CALL_BEGIN, CALL_END]
    return [*prompts, *(town.lower() for town in TOWNS), *(aspect.name for aspect in ASPECTS), *values]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model."""
    return small_qwen3(tokenizer, seed)


#: What runs with this model need: the compact style, one passage a search; it writes no thoughts.
DEFAULTS: Mapping[str, Any] = {
    "env.prompt": "compact",
    "env.results": 1,
    "max_model_len": 192,
    "max_response_tokens": 20,
    "lr": 5e-4,
    "iterations": 60,
    "eval_episodes": 300,
    "eval_interval": 20,
}

STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training=IMITATION,
    defaults=DEFAULTS,
)
