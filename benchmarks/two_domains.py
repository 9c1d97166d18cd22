"""One small model that plays two environments: WebShop's small catalogue and the small situation puzzles.

The starters know the words of one environment each. To see what training on one environment does to another, a model
must know both: here the words of both starters are one vocabulary, and the demonstrations of both are mixed half and
half. The union is an environment like any other, with task ids such as ``webshop:human/00012``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.spaces import Text
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM

from rl_agents.envs import base
from rl_agents.envs.situation_puzzles import starter as puzzles
from rl_agents.envs.small_model import IMITATION, small_qwen3, word_tokenizer
from rl_agents.envs.webshop import starter as webshop

#: Name -> what an environment's starter needs of it; the first is trained on, the other is out of domain.
DOMAINS: Mapping[str, Mapping[str, Any]] = {
    "webshop": {"catalogue": "small", "prompt": "compact"},
    "situation_puzzles": {"puzzles": "small", "prompt": "compact", "success_threshold": 1.0},
}
LENGTHS: Mapping[str, int] = {"max_model_len": 384, "max_response_tokens": 12}
StepResult = tuple[str, float, bool, bool, dict[str, Any]]


class TwoDomains(gymnasium.Env[str, str]):
    """Plays the environment that the task id names."""

    observation_space = action_space = Text(max_length=1 << 20)

    def __init__(self, max_turns: int) -> None:
        self._envs = {name: base.make_env(name, options, max_turns) for name, options in DOMAINS.items()}
        self._env = self._envs["webshop"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin with the task ``options["task_id"]``."""
        domain, _, task = (options or {})["task_id"].partition(":")
        self._env = self._envs[domain]
        return self._env.reset(seed=seed, options={"task_id": task})

    def step(self, action: str) -> StepResult:
        """Act in the environment of the task."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        return observation, float(reward), terminated, truncated, info


@dataclass(frozen=True)
class NoOptions:
    """The environment has no keys."""


def make(options: NoOptions, max_turns: int) -> TwoDomains:
    """Create the environment."""
    return TwoDomains(max_turns)


def task_ids(split: str, options: NoOptions) -> list[str]:
    """Return as many tasks of one as of the other: the smaller set is repeated."""
    sets = [[f"{name}:{task}" for task in base.task_ids(name, split, options)] for name, options in DOMAINS.items()]
    longest = max(map(len, sets))
    return [ids[place % len(ids)] for ids in sets for place in range(longest)]


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build a tokenizer of the words of both starters."""
    words = dict.fromkeys([*webshop.words(), *puzzles.words()])
    return word_tokenizer(list(words), puzzles.TAGS, LENGTHS["max_model_len"])


def build_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> Qwen3ForCausalLM:
    """Build the untrained model, half as wide again as either starter."""
    return small_qwen3(tokenizer, seed, hidden_size=96, heads=3, compose_embeddings=puzzles.compose_embeddings)


def demonstrate(task_id: str, rng: random.Random, options: NoOptions, max_turns: int = 0) -> list[tuple[str, str]]:
    """Let the mediocre demonstrator of the task's environment play."""
    domain, _, task = task_id.partition(":")
    own = base.read_env_options(base.env_spec(domain), DOMAINS[domain])
    return base.starter_spec(domain).demonstrate(task, rng, own, max_turns)


STARTER = base.StarterSpec(
    build_tokenizer=build_tokenizer,
    build_model=build_model,
    demonstrate=demonstrate,
    training={**IMITATION, "iterations": 24, "tokens_per_microbatch": 4096},
    defaults=LENGTHS,
)
SPEC = base.EnvSpec(
    name="two_domains",
    summary="WebShop and situation puzzles, for a model that plays both",
    reference="benchmarks/two_domains.py",
    module="benchmarks.two_domains",
    gym_id="rl_agents/TwoDomains-v0",
    options=NoOptions,
    max_turns=15,
)
base.register(SPEC)
