"""One small model for several environments, to measure how training on one affects the others.

They share one vocabulary, and each gives the same number of demonstrations. The union is an environment, with task
ids such as ``webshop:human/00012``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import gymnasium
import torch
from gymnasium.spaces import Text
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rl_agents.config.options import key
from rl_agents.envs import base
from rl_agents.envs.circuit_decoding import demonstrations as circuits
from rl_agents.envs.guess_numbers import demonstrations as numbers
from rl_agents.envs.multihop_qa import demonstrations as questions
from rl_agents.envs.situation_puzzles import demonstrations as puzzles
from rl_agents.envs.starters import IMITATION, TAGS, small_qwen3, word_tokenizer
from rl_agents.envs.webshop import demonstrations as webshop

#: (embedding matrix, vocabulary) -> None; see `small_qwen3`.
Compose = Callable[[torch.Tensor, Mapping[str, int]], None]
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


@dataclass(frozen=True)
class Domain:
    """An environment of the union.

    Attributes:
        options: of the environment, for the small model.
        words, tags: of its warm-start model.
        episodes: of one evaluation.
        lengths: most tokens of a dialogue, and of a response.
        compose: composes its embeddings.
    """

    options: Mapping[str, Any]
    words: Callable[[], list[str]]
    episodes: int
    lengths: tuple[int, int]
    tags: tuple[str, ...] = ()
    compose: Compose | None = None


#: By environment; the first is the one for training.
DOMAINS: Mapping[str, Domain] = {
    "webshop": Domain({"catalogue": "small", "prompt": "compact"}, webshop.words, 240, (384, 12)),
    "guess_numbers": Domain(
        {"prompt": "compact"}, numbers.words, 256, (256, 24), TAGS, numbers.compose_embeddings
    ),
    "circuit_decoding": Domain(
        {"prompt": "compact"}, circuits.words, 300, (320, 32), TAGS, circuits.compose_embeddings
    ),
    "multihop_qa": Domain(
        {"questions": "small", "prompt": "compact"}, questions.words, 300, (256, 14), questions.TAGS,
        questions.compose_embeddings,
    ),
    "situation_puzzles": Domain(
        {"puzzles": "small", "prompt": "compact", "success_threshold": 1.0}, puzzles.words, 300, (384, 12),
        TAGS, puzzles.compose_embeddings,
    ),
}  # fmt: skip
#: Union -> environments that the base model imitates.
PANELS: Mapping[str, tuple[str, ...]] = {
    "two_domains": ("webshop", "situation_puzzles"),
    "five_domains": tuple(DOMAINS),
}


class Union(gymnasium.Env[str, str]):
    observation_space = action_space = Text(max_length=1 << 20)

    def __init__(self, names: tuple[str, ...], max_turns: int) -> None:
        self._envs = {name: base.make_env(name, DOMAINS[name].options, max_turns) for name in names}
        self._env = self._envs[names[0]]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        domain, _, task = (options or {})["task_id"].partition(":")
        self._env = self._envs[domain]
        return self._env.reset(seed=seed, options={"task_id": task})

    def step(self, action: str) -> StepResult:
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated, truncated, info


@dataclass(frozen=True)
class Panel:
    """Options of the union: a name of `PANELS`."""

    panel: Literal["two_domains", "five_domains"] = key("two_domains", "environments that the model plays")


def make(options: Panel, max_turns: int) -> Union:
    return Union(PANELS[options.panel], max_turns)


def task_ids(split: str, options: Panel) -> list[str]:
    """Return equally many tasks of each environment; smaller sets are repeated."""
    sets = [
        [f"{name}:{task}" for task in base.task_ids(name, split, DOMAINS[name].options)]
        for name in PANELS[options.panel]
    ]
    longest = max(map(len, sets))
    return [ids[place % len(ids)] for ids in sets for place in range(longest)]


def demonstrate(task_id: str, rng: random.Random, options: Panel, max_turns: int = 0) -> list[tuple[str, str]]:
    name, _, task = task_id.partition(":")
    own = base.read_env_options(base.env_spec(name), DOMAINS[name].options)
    return base.starter_spec(name).demonstrate(task, rng, own, max_turns)


def starter(panel: str, iterations: int) -> base.StarterSpec:
    """Return the warm-start model of a panel: 1.5 times as wide as usual, with the words of all its environments."""
    domains = [DOMAINS[name] for name in PANELS[panel]]
    tokens = max(domain.lengths[0] for domain in domains)

    def build_tokenizer() -> PreTrainedTokenizerFast:
        words = dict.fromkeys(word for domain in domains for word in domain.words())
        tags = dict.fromkeys(tag for domain in domains for tag in domain.tags)
        return word_tokenizer(list(words), list(tags), tokens)

    def compose(weight: torch.Tensor, vocab: Mapping[str, int]) -> None:
        for domain in domains:
            if domain.compose is not None:
                domain.compose(weight, vocab)

    def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
        return small_qwen3(tokenizer, seed, hidden_size=96, heads=3, compose_embeddings=compose)

    return base.StarterSpec(
        build_tokenizer=build_tokenizer,
        build_model=build_model,
        demonstrate=demonstrate,
        training={**IMITATION, "iterations": iterations, "tokens_per_microbatch": 4096},
        defaults={
            "env.panel": panel,
            "max_model_len": tokens,
            "max_response_tokens": max(domain.lengths[1] for domain in domains),
        },
    )


STARTERS = {"two_domains": starter("two_domains", 24), "five_domains": starter("five_domains", 60)}
STARTER = replace(STARTERS["two_domains"], variant=lambda options: STARTERS.get(options.get("panel", "")))
SPEC = base.EnvSpec(
    name="domains",
    summary="several environments, for one model that plays them all",
    reference="benchmarks/domains.py",
    module="benchmarks.domains",
    gym_id="rl_agents/Domains-v0",
    options=Panel,
    max_turns=15,
)


def register() -> None:
    """Register the union; importing this module does not, so that other code sees only its own environments."""
    if SPEC.name not in base.ENVIRONMENTS:
        base.register(SPEC)
