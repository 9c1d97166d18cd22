"""The mediocre player of alfworld, and the warm-start models that imitate it.

The small one reads the compact style in a growing dialogue (``context=append``), about ten words a turn. Each thing of
the house is one word, whose embedding is composed of its type and its number. The others read the last steps of the
papers' own prompts (``context=window(n)``) and think before they act: a Qwen3 of about 2 M parameters with a byte-level
BPE trained on scripted episodes.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch

from rl_agents.envs.alfworld import AlfworldOptions
from rl_agents.envs.alfworld.env import AlfworldEnv
from rl_agents.envs.alfworld.expert import Expert, kind_of
from rl_agents.envs.alfworld.families import CHANGES, FAMILIES
from rl_agents.envs.alfworld.prompts import KEPT_WORDS, STYLES, VERBS, View
from rl_agents.envs.alfworld.scenes import kinds
from rl_agents.envs.alfworld.tasks import task_ids
from rl_agents.envs.spec import StarterSpec
from rl_agents.envs.starters import (
    IMITATION,
    INIT_STD,
    Act,
    ScriptedPlayer,
    Slips,
    kept_apart,
    phrase_tokenizer,
    small_qwen3,
    word_starter,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


#: A player's thought before a random command.
AT_RANDOM = "I am not sure. I try something."


def thought(expert: Expert, command: str) -> str:
    """Return the expert's reason for ``command``, before it observes the result, in short sentences from a template."""
    goal, verb, thing = expert.goal, command.partition(" ")[0], expert.holding
    if thing is None:
        return f"Here is a {goal.object_type}. I take it." if verb == "take" else f"I look for a {goal.object_type}."
    if kind_of(thing) != goal.object_type:
        return f"I do not need the {thing}."
    if goal.family.in_light:
        return f"I have the {thing}. I {'use' if verb == 'use' else 'look for'} a {goal.target_type}."
    change = goal.family.change
    if change and expert.state.get(thing) != change:
        return f"I have the {thing}. I need it {change}: {CHANGES[change][1].lower()}."
    return f"I have the {thing}. I put it in a {goal.target_type}."


#: Per turn: a random admissible command, and forgetting the contents of one place, so that it is searched again.
SLIPS = {"random_command": 0.25, "forget": 0.25}


class MediocrePlayer:
    """The expert with errors; ``thought`` is its reason for the last command."""

    def __init__(self, first_observation: str, slips: Slips) -> None:
        self._expert, self._slips = Expert(first_observation), slips
        self.observe = self._expert.observe
        self.thought = ""

    def choose(self, admissible: Sequence[str]) -> str:
        seen = sorted(self._expert.contents)
        if seen and self._slips("forget"):
            del self._expert.contents[self._slips.rng.choice(seen)]
        if admissible and self._slips("random_command"):
            self.thought = AT_RANDOM
            return self._slips.rng.choice(sorted(admissible))
        command = self._expert.choose()
        self.thought = thought(self._expert, command)
        return command


MAX_TURNS = 25


def _begin(env: AlfworldEnv, slips: Slips) -> Act:
    player = MediocrePlayer(env.view.room, slips)

    def act(observation: str, hurried: bool) -> str:
        view = env.view
        if view.history:
            player.observe(view.history[-1][1], view.text)
        command = player.choose(view.admissible)
        return STYLES[env.options.prompt].response(command, player.thought)

    return act


DEMONSTRATOR = ScriptedPlayer(AlfworldEnv, _begin, SLIPS, fixed={}, most_turns=MAX_TURNS)
EXPERT = DEMONSTRATOR.flawless


def read_and_written(options: AlfworldOptions, steps: int, episodes: int) -> Iterator[str]:
    """Yield the prompts with ``steps`` steps, and the responses, of the player in ``episodes`` fixed training tasks."""
    rng, style = random.Random(f"heard/{options.size}"), STYLES[options.prompt]
    views: list[View] = []

    def begin(env: AlfworldEnv, slips: Slips) -> Act:
        act = _begin(env, slips)

        def watched(observation: str, hurried: bool) -> str:
            views.append(env.view)
            return act(observation, hurried)

        return watched

    player = replace(DEMONSTRATOR, begin=begin)
    for task in rng.sample(task_ids("train", options), episodes):
        views.clear()
        dialogue = player(task, rng, options)
        for view, (_, response) in zip(views, dialogue, strict=True):
            yield style.window(view, steps)
            yield response


Prompt = Literal["3spo", "steppo"]
#: Number of steps that the papers' prompts repeat, and of turns in their episodes.
STEPS: Mapping[Prompt, int] = {"3spo": 2, "steppo": 20}
TURNS: Mapping[Prompt, int] = {"3spo": 50, "steppo": 20}
VOCABULARY, MAX_TOKENS = 1536, 1024
#: Number of episodes in small houses, and in full ones, whose text the tokenizer is trained on.
HEARD = 60


def _tokenizer(prompt: Prompt) -> PreTrainedTokenizerFast:
    """Train the tokenizer of a prompt; about a second."""
    houses = (AlfworldOptions(prompt=prompt), AlfworldOptions(prompt=prompt, size="full"))
    texts = (text for options in houses for text in read_and_written(options, STEPS[prompt], HEARD))
    return phrase_tokenizer(texts, kept_apart(kinds()), VOCABULARY, MAX_TOKENS)


#: The imitation of the papers' prompts. It is too short for good play, so that reinforcement learning can improve it.
TEXT_TRAINING: Mapping[str, Any] = {
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
        build_tokenizer=partial(_tokenizer, prompt),
        build_model=partial(small_qwen3, hidden_size=192, layers=5, heads=6, rope_theta=10_000.0, init_std=0.05),
        demonstrate=DEMONSTRATOR,
        training=TEXT_TRAINING,
        defaults=defaults,
        expert=EXPERT,
        takes="about five minutes",
    )


#: Numbers of the things of a type in generated games.
NUMBERS = range(1, 10)


def words() -> list[str]:
    fixed = [*KEPT_WORDS, *VERBS, *(family.short for family in FAMILIES), ":", ">"]
    things = [f"{kind}-{number}" for kind in kinds() for number in NUMBERS]
    return list(dict.fromkeys([*fixed, *kinds(), *things]))


def _compose_embeddings(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
    """Overwrite the row of ``mug-1`` with the scaled sum of the row of ``mug`` and a vector of the number."""
    numbers = {number: torch.randn(weight.shape[1]) * INIT_STD for number in NUMBERS}
    for kind in kinds():
        for number in NUMBERS:
            weight[vocab[f"{kind}-{number}"]] = (weight[vocab[kind]] + numbers[number]) / 2**0.5


STARTER = word_starter(
    DEMONSTRATOR,
    words,
    tags=(),
    max_tokens=512,
    compose=_compose_embeddings,
    heads=4,
    training={
        "iterations": 12,
        "minibatches": 40,
        "tasks_per_iteration": 640,
        "demonstrations": 3072,
        "tokens_per_microbatch": 4096,
    },
    defaults={
        "max_turns": 25,
        "max_model_len": 384,
        "max_response_tokens": 4,
        "iterations": 40,
        "eval_episodes": 140,
        "eval_interval": 10,
    },
    expert=EXPERT,
    variant=lambda options: next((text_starter(prompt) for prompt in STEPS if prompt == options.get("prompt")), None),
)
