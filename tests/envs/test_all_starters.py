"""What the starter model of every environment that has one must keep."""

from __future__ import annotations

import random

import pytest
import torch

import rl_agents.envs  # noqa: F401  (registers)
from rl_agents.envs.base import ENVIRONMENTS, StarterSpec, env_spec, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError


def _has_starter(name: str) -> bool:
    try:
        return starter_spec(name).opening is None
    except InputError:
        return False


#: Starters whose dialogues begin with the observation; the others' openings have tests of their own.
every_starter = pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if _has_starter(name)])


def demonstrated(name: str, recipe: StarterSpec, seed: int) -> list[dict[str, str]]:
    """A demonstration as chat messages."""
    options = {key.removeprefix("env."): value for key, value in recipe.defaults.items() if key.startswith("env.")}
    rng = random.Random(seed)
    task = rng.choice(task_ids(name, "train", options))
    dialogue = recipe.demonstrate(task, rng, read_env_options(env_spec(name), options))
    turns = (({"role": "user", "content": o}, {"role": "assistant", "content": a}) for o, a in dialogue)
    return [message for turn in turns for message in turn]


@every_starter
def test_chat_template_turn_by_turn_equals_the_whole_dialogue(name: str) -> None:
    recipe = starter_spec(name)
    tokenizer = recipe.build_tokenizer()
    for seed in range(5):
        messages = demonstrated(name, recipe, seed)
        whole = tokenizer.apply_chat_template(messages, return_dict=True, return_assistant_tokens_mask=True)
        pieces: list[int] = []
        for message in messages:
            pieces += tokenizer(tokenizer.apply_chat_template([message], tokenize=False))["input_ids"]
        assert whole["input_ids"] == pieces and tokenizer.unk_token_id not in pieces
        taught = [i for i, m in zip(whole["input_ids"], whole["assistant_masks"], strict=True) if m]
        answers = [message["content"] for message in messages if message["role"] == "assistant"]
        said = "".join(tokenizer.decode(taught).split())
        assert said == "".join(f"{answer} <end>" for answer in answers).replace(" ", "")
        assert taught.count(tokenizer.eos_token_id) == len(answers)


@every_starter
def test_the_untrained_model_is_small_and_seeded(name: str) -> None:
    recipe = starter_spec(name)
    tokenizer = recipe.build_tokenizer()
    state = torch.random.get_rng_state()
    model, same, other = (recipe.build_model(tokenizer, seed) for seed in (1, 1, 2))
    assert torch.equal(state, torch.random.get_rng_state())
    assert model.num_parameters() < 250_000
    rows = model.get_input_embeddings().weight
    assert torch.equal(rows, same.get_input_embeddings().weight)
    assert not torch.equal(rows, other.get_input_embeddings().weight)
