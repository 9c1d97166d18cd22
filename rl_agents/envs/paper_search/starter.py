"""The small starter model of paper search: its words, and what it is taught.

It imitates the `demonstrator` in the small libraries, where a title is two words and an id is one, each one token; the
JSON of a call is one token before its argument and one behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rl_agents.envs.paper_search.demonstrator import SMALL, demonstrate, demonstrate_well
from rl_agents.envs.paper_search.expert import CLOSING, opening
from rl_agents.envs.paper_search.generated import small_ids
from rl_agents.envs.paper_search.prompts import BAD_CALL, BAD_TURN, DONE, FIND, NEXT, NOTHING, REASONS
from rl_agents.envs.paper_search.state import EXPAND, SEARCH
from rl_agents.envs.paper_search.topics import SMALL_JARGON, SMALL_METHODS, SMALL_SUBJECTS
from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.spec import StarterSpec

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

MAX_TOKENS = 512
TAGS = ("tool_call", "answer")


def words() -> list[str]:
    """Return every word but special tokens and tags: those of prompts and calls, of titles, and the ids."""
    prompts = [FIND, NEXT, NOTHING, DONE, SEARCH, EXPAND, BAD_TURN, BAD_CALL, *REASONS]
    return [*prompts, opening(SEARCH), opening(EXPAND), CLOSING, *_titles(), *small_ids()]


def _titles() -> tuple[str, ...]:
    return (*SMALL_SUBJECTS, *SMALL_METHODS, *SMALL_JARGON)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the word-level tokenizer; words that it does not know become ``<unk>``."""
    return word_tokenizer(words(), TAGS, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model."""
    return small_qwen3(tokenizer, seed)


#: A quarter of the default's batch and more of its steps: here the number of steps is what counts.
TRAINING: Mapping[str, Any] = {**IMITATION, "iterations": 60, "tasks_per_iteration": 320, "demonstrations": 6000}

#: What runs with this model need: it reads the compact prompts of the small libraries only.
DEFAULTS: Mapping[str, Any] = {
    **{f"env.{key}": value for key, value in SMALL.items()},
    "max_model_len": 384,
    "max_response_tokens": 24,
    "lr": 5e-4,
    "iterations": 40,
    "eval_episodes": 240,
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
