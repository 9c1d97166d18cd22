"""The starter models of alfworld that read the papers' own prompts and think before they act.

Their tokenizer is a byte-level BPE trained on prompts and responses of scripted episodes, their network a Qwen3 of
about 2 M parameters, and what they imitate is the mediocre player's episodes in the paper's form:
``<think>I look for a mug.</think> <action>go to cabinet 1</action>``. They read the last steps only
(``context=window(n)``), as the papers' models do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rl_agents.envs.alfworld.demonstrator import demonstrate, demonstrate_well, read_and_written
from rl_agents.envs.alfworld.scenes import kinds
from rl_agents.envs.alfworld.spec import AlfworldOptions
from rl_agents.envs.small_model import IMITATION, small_qwen3
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.text_model import kept_apart, phrase_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

Prompt = Literal["3spo", "steppo"]
#: Steps that the papers' prompts repeat, and the turns of their episodes.
STEPS: Mapping[Prompt, int] = {"3spo": 2, "steppo": 20}
TURNS: Mapping[Prompt, int] = {"3spo": 50, "steppo": 20}
VOCABULARY = 1536
#: Episodes in small houses, and in full ones, whose text the tokenizer is trained on.
HEARD = 60
MAX_TOKENS = 1024


def build_tokenizer(prompt: Prompt) -> PreTrainedTokenizerFast:
    """Train the tokenizer of a prompt; about a second."""
    houses = (AlfworldOptions(prompt=prompt), AlfworldOptions(prompt=prompt, size="full"))
    texts = (text for options in houses for text in read_and_written(options, STEPS[prompt], HEARD))
    return phrase_tokenizer(texts, kept_apart(kinds()), VOCABULARY, MAX_TOKENS)


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model."""
    return small_qwen3(tokenizer, seed, hidden_size=192, layers=5, heads=6, rope_theta=10_000.0, init_std=0.05)


#: Hyper-parameters of the imitation: too few steps to play well, so that there is something to learn.
TRAINING: Mapping[str, Any] = {
    **IMITATION,
    "iterations": 6,
    "minibatches": 40,
    "tasks_per_iteration": 128,
    "demonstrations": 1024,
    "lr": 3e-3,
    "lr_decay": 0.0,
    "tokens_per_microbatch": 4096,
}


@functools.cache
def text_starter(prompt: Prompt) -> StarterSpec:
    """Return the starter that reads a paper's prompt."""
    defaults = {
        "env.prompt": prompt,
        "context": f"window({STEPS[prompt]})",
        "max_turns": TURNS[prompt],
        "max_model_len": 512,
        "max_response_tokens": 32,
        "lr": 3e-4,
        "iterations": 40,
        "eval_episodes": 140,
        "eval_interval": 10,
    }
    return StarterSpec(
        build_tokenizer=partial(build_tokenizer, prompt),
        build_model=build_model,
        demonstrate=demonstrate,
        training=TRAINING,
        defaults=defaults,
        expert=demonstrate_well,
        takes="about five minutes",
    )
