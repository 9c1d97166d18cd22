"""The warm-start model of several environments: the words of all, and demonstrations of all players."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch

from rl_agents.envs.small_model import SPECIAL_TOKENS, word_tokenizer
from rl_agents.envs.spec import StarterSpec
from rl_agents.errors import InputError

#: Keys of an environment's prompts, in addition to its own keys.
OF_PROMPTS = ("max_model_len", "max_response_tokens")


def shared_starter(starters: Mapping[str, tuple[str, StarterSpec]]) -> StarterSpec:
    """Return the model that reads and imitates what each of the others does, on as many dialogues as all of them.

    Args:
        starters: (environment, its warm-start model) by the environment's name in the run.

    Raises:
        InputError: a model has parts of words instead of words.
    """
    words: dict[str, dict[str, int]] = {}
    length, (_, first), entries = 0, next(iter(starters.values())), []
    for name, (env, starter) in starters.items():
        tokenizer = starter.build_tokenizer()
        if type(tokenizer.backend_tokenizer.model).__name__ != "WordLevel":
            raise InputError(f"model=starter: the warm-start model of {env} has no word for each token; set model=DIR")
        words[name], length = tokenizer.get_vocab(), max(length, tokenizer.model_max_length)
        kept = [key for key in starter.defaults if key in OF_PROMPTS or key.startswith("env.")]
        entries.append({"env": env, "name": name, **{key: starter.defaults[key] for key in kept}})
    every = sorted(set().union(*words.values()) - {*SPECIAL_TOKENS})
    tags = [word[1:-1] for word in every if re.fullmatch(r"<\w+>", word) and f"</{word[1:]}" in every]
    plain = [word for word in every if word not in {f"<{slash}{tag}>" for tag in tags for slash in ("", "/")}]

    def build_model(tokenizer: Any, seed: int) -> Any:
        """Build the first one's network; each environment's words begin as in its own model."""
        model = first.build_model(tokenizer, seed)
        places = tokenizer.get_vocab()
        with torch.no_grad():
            for name, (_, starter) in starters.items():
                rows = [places[word] for word in words[name]]
                own = starter.build_model(tokenizer, seed).get_input_embeddings().weight
                model.get_input_embeddings().weight[rows] = own[rows]
        return model

    trainings = [starter.training for _, starter in starters.values()]
    episodes = sum(own["iterations"] * own["tasks_per_iteration"] for own in trainings)
    iterations = round(episodes / first.training["tasks_per_iteration"])
    totals = {"iterations": iterations, "demonstrations": sum(own["demonstrations"] for own in trainings)}
    rest = {key: value for key, value in first.defaults.items() if key not in entries[0]}
    return StarterSpec(
        build_tokenizer=lambda: word_tokenizer(plain, tags, length),
        build_model=build_model,
        demonstrate=first.demonstrate,
        training={**first.training, **totals},
        defaults={**rest, "environments": entries},
        version=sum(starter.version for _, starter in starters.values()),
        takes="some minutes",
    )
