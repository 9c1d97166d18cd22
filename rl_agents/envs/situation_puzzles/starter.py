"""The small starter model of SituationPuzzles: its words, its weights before training, and what it is taught.

It plays the set ``small`` in the compact style: four scenes, three things to find out about each, five possibilities
for each of them. A scene, a slot and a value are one token each, and an answer is three values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_agents.envs.situation_puzzles.demonstrator import demonstrate
from rl_agents.envs.situation_puzzles.prompts import NO_QUESTION, TOO_LONG
from rl_agents.envs.situation_puzzles.tasks import SMALL_SLOTS, SMALL_THEMES
from rl_agents.envs.situation_puzzles.themes import Theme, themes
from rl_agents.envs.small_model import IMITATION, small_qwen3, sum_parts, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.tags import MALFORMED_REASONS

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 256
TAGS = ("think", "interact", "answer")


def small_themes() -> list[Theme]:
    """Return the scenes that the model knows."""
    return list(themes().values())[:SMALL_THEMES]


def words() -> list[str]:
    """Return every word but special tokens and tags."""
    prompts = [":", "yes", "no", "unknown", "not-a-question", "invalid", *MALFORMED_REASONS, NO_QUESTION, TOO_LONG]
    return list(dict.fromkeys([*prompts, *(theme.name for theme in small_themes()), *_parts()]))


def _parts() -> dict[str, list[str]]:
    """Return the parts of every slot's and every value's embedding: what is asked, and which possibility it is."""
    found: dict[str, list[str]] = {}
    for theme in small_themes():
        for slot in theme.slots[:SMALL_SLOTS]:
            about = f"{theme.name} {slot.name}"
            found.setdefault(slot.name, [f"the slot {slot.name}"]).append(about)
            for place, value in enumerate(slot.values):
                found.setdefault(value, []).extend([about, f"possibility {place}", f"the value {value}"])
    return found


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, the embeddings of slots and values composed."""
    return small_qwen3(tokenizer, seed, compose_embeddings=compose_embeddings)


def compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the rows of slots and values; see `sum_parts`."""
    parts = _parts()
    sum_parts(weight, vocab, lambda word: parts.get(word, []))


#: What runs with this model need: the small set in the compact style; only a wholly right answer is a success.
DEFAULTS: Mapping[str, Any] = {
    "env.puzzles": "small",
    "env.prompt": "compact",
    "env.success_threshold": 1.0,
    "max_model_len": 192,
    "max_response_tokens": 8,
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
