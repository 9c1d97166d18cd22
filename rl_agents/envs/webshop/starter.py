"""The small starter model of WebShop: its words, its weights before training, and what it is taught.

It imitates the `demonstrator` in the small catalogue, where every property, colour and sort of product is one word, and
so one token. Most of what it writes is copied from the request: two layers are enough for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.webshop.demonstrator import CATALOGUE, demonstrate, demonstrate_well
from rl_agents.envs.webshop.generated import (
    SMALL_COLOURS,
    SMALL_KINDS,
    SMALL_PRICES,
    SMALL_PROPERTIES,
    SMALL_SIZES,
)
from rl_agents.envs.webshop.prompts import COMPACT_PROBLEMS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 512


def words() -> list[str]:
    """Return every word but special tokens: those of pages, requests and commands, and all prices."""
    pages = [
        "page",
        "search",
        "results",
        "item",
        "done",
        "description",
        "features",
        "reviews",
        "no",
        ";",
        "is",
        "color",
        "size",
    ]
    requests = ["buy", "under", "invalid", *COMPACT_PROBLEMS, "bought", "right", "wrong"]
    commands = ["search[", "click[", "]", "now", "back", "to", "next", "prev", "<", ">"]
    numbers = [str(number) for number in range(max(SMALL_PRICES[1], 100) + 1)]
    language = [*SMALL_KINDS, *SMALL_PROPERTIES, *SMALL_COLOURS, *SMALL_SIZES]
    return list(dict.fromkeys([*pages, *requests, *commands, *numbers, *language]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), (), MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model."""
    return small_qwen3(tokenizer, seed)


#: What runs with this model need: it reads the compact pages of the small catalogue only.
DEFAULTS: Mapping[str, Any] = {
    "env.catalogue": CATALOGUE,
    "env.prompt": "compact",
    "max_model_len": 384,
    "max_response_tokens": 12,
    "lr": 5e-4,
    "iterations": 40,
    "eval_episodes": 240,
    "eval_interval": 20,
}


STARTER = StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training={**IMITATION, "demonstrations": 4096, "iterations": 12},
    defaults=DEFAULTS,
    expert=demonstrate_well,
)
