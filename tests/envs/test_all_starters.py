"""What the starter model of every environment that has one must keep."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chat_models import save_chat_model
from environments import outcome

from rl_agents.algorithms import Settings
from rl_agents.background import settled
from rl_agents.envs.base import ENVIRONMENTS, StarterSpec, env_spec, make_env, read_env_options, starter_spec, task_ids
from rl_agents.errors import InputError, NoPlayer
from rl_agents.trainer.algorithm import AgentAlgorithm
from rl_agents.trainer.resolve import resolve
from rl_agents.trainer.warm_start import build_starter


def _has_starter(name: str) -> bool:
    try:
        return starter_spec(name).opening is None
    except InputError:
        return False


#: Starters whose dialogues begin with the observation; the others' openings have tests of their own.
every_starter = pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if _has_starter(name)])


def keys_of(recipe: StarterSpec) -> dict[str, Any]:
    """The environment's keys as the model was made for them."""
    return {key.removeprefix("env."): value for key, value in recipe.defaults.items() if key.startswith("env.")}


def demonstrated(name: str, recipe: StarterSpec, seed: int) -> list[dict[str, str]]:
    """A demonstration as chat messages."""
    options, rng = keys_of(recipe), random.Random(seed)
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
        assert len(pieces) <= recipe.defaults["max_model_len"]
        taught = [i for i, m in zip(whole["input_ids"], whole["assistant_masks"], strict=True) if m]
        answers = [message["content"] for message in messages if message["role"] == "assistant"]
        said = "".join(tokenizer.decode(taught).split())
        assert said == "".join(f"{answer} <end>" for answer in answers).replace(" ", "")
        assert taught.count(tokenizer.eos_token_id) == len(answers)


@every_starter
def test_demonstrations_are_what_the_environment_says_and_fit_the_models_answers(name: str) -> None:
    recipe, tokenizer = starter_spec(name), starter_spec(name).build_tokenizer()
    options = keys_of(recipe)
    player = replace(recipe.demonstrate, spare=False)
    chosen = read_env_options(env_spec(name), options)
    for seed, task in enumerate(task_ids(name, "train", options)[::200]):
        dialogue = player(task, random.Random(seed), chosen)
        assert dialogue == player(task, random.Random(seed), chosen)
        env = make_env(name, options)
        observation, over = env.reset(options={"task_id": task})[0], False
        for shown, action in dialogue:
            assert not over and shown in (observation, f"{observation}\n{getattr(env, 'answer_instruction', '')}")
            assert len(tokenizer(action)["input_ids"]) < recipe.defaults["max_response_tokens"]
            observation, _, terminated, truncated, _ = settled(env.step(action))
            over = terminated or truncated
        assert over or len(dialogue) == getattr(player, "most_turns", 0)


#: Success of the player that is imitated: mediocre, so that reinforcement learning has something to improve.
MEDIOCRE = {
    "guess_numbers": (0.6, 0.9), "circuit_decoding": (0.35, 0.65), "situation_puzzles": (0.35, 0.6),
    "preference_estimation": (0.42, 0.68), "movie_recommendation": (0.5, 0.8), "webshop": (0.28, 0.52),
    "multihop_qa": (0.32, 0.6), "paper_search": (0.5, 0.9), "long_form_qa": (0.35, 0.65),
}  # fmt: skip


@pytest.mark.parametrize("name", MEDIOCRE)
def test_the_imitated_player_is_mediocre_and_the_expert_is_not(name: str) -> None:
    recipe = starter_spec(name)
    options = keys_of(recipe)
    chosen, ids = read_env_options(env_spec(name), options), task_ids(name, "train", options)

    def share(player: Any, tasks: list[str]) -> float:
        shots = {task: replace(player, spare=False)(task, random.Random(task), chosen) for task in tasks}
        return sum(outcome(name, task, shot, **options)["success"] for task, shot in shots.items()) / len(shots)

    low, high = MEDIOCRE[name]
    assert low < share(recipe.demonstrate, ids[:: len(ids) // 150]) < high
    assert recipe.expert is None or share(recipe.expert, ids[:: len(ids) // 30]) > 0.95


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


@pytest.mark.parametrize("name", ["harbor", "openenv", "verifiers"])
def test_without_a_player_there_is_no_warm_start_model(name: str) -> None:
    with pytest.raises(NoPlayer, match=r"env\.player="):
        starter_spec(name, {})


def test_imitation_plays_as_its_demonstrator_does_and_later_runs_do_too(tmp_path: Path) -> None:
    """A pretrained model: guess_numbers' player writes the short prompt, which is not the environment's default."""
    keys = {
        "iterations": 1,
        "tasks_per_iteration": 2,
        "demonstrations": 4,
        "max_model_len": 512,
        "max_response_tokens": 64,
    }
    build = AgentAlgorithm.from_settings
    folder = build_starter(
        build, "guess_numbers", tmp_path / "made", set=keys, model=str(save_chat_model(tmp_path / "base"))
    )
    later = {"algo": "grpo", "env": "guess_numbers", "model": str(folder)}
    assert resolve(Settings.from_dict(later)).env_options["prompt"] == "compact"
    with pytest.raises(InputError, match=r"env.prompt=paper: .* needs env.prompt=compact"):
        resolve(Settings.from_dict({**later, "algo": "sft", "env.prompt": "paper"}))
