"""Engines that answer after the time that a GPU would need, and an environment without cost.

`SimulatedGroup` takes the place of `InferenceGroup`, so that all code around an engine is that of a run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import gymnasium
import ray

from rl_agents.inference import actor as engine_actor
from rl_agents.inference.base import Completion, EngineSettings, Sampling
from rl_agents.inference.engine_group import InferenceGroup

#: A GPU's sampled tokens per second, and the sequences that it decodes together; an episode's shape, in tokens.
TOKENS_PER_S, CONCURRENT, RESPONSE, OBSERVATION = 1500.0, 100, 200, 50
WORDS = 32_000
#: Sampled ids and log-probabilities are slices of these.
_DICE = random.Random(0)
IDS = [_DICE.randrange(300, WORDS) for _ in range(20_000)]
LOGPROBS = [-_DICE.random() for _ in IDS]


class Talk(gymnasium.Env[str, str]):
    """An environment without cost, whose observations have `OBSERVATION` words."""

    observation_space = action_space = gymnasium.spaces.Text(1 << 16)
    blocking = "inline"

    @staticmethod
    def task_ids(split: str) -> list[str]:
        return [str(number) for number in range(20_000)]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return self._words(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return self._words(), float(len(action) % 2), False, False, {}

    def _words(self) -> str:
        return " ".join(f"w{word}" for word in self.np_random.integers(300, WORDS, OBSERVATION))


class SimulatedEngine:
    """Samples 100 to 299 tokens and answers after their time, as one of `CONCURRENT` sequences."""

    def __init__(self, speed: float) -> None:
        self.token_s, self.version = CONCURRENT / TOKENS_PER_S / speed, 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        dice = random.Random(sampling.seed)
        count, first = dice.randrange(RESPONSE // 2, 3 * RESPONSE // 2), dice.randrange(len(IDS) - 2 * RESPONSE)
        await asyncio.sleep(count * self.token_s)
        part = slice(first, first + count)
        return Completion(IDS[part], LOGPROBS[part], self.version, "length")

    async def load_weights(self, weights: Any, version: int) -> None:
        self.version = version


class EngineHost:
    """Many `EngineActor`s in one process."""

    def __init__(self, count: int, speed: float) -> None:
        engine_actor.MAX_WAIT_S /= speed
        engine_actor.LINGER_S /= speed
        self.exchanges = 0
        with mock.patch("rl_agents.inference.engines.build_engine", lambda settings: SimulatedEngine(speed)):
            self.engines = [engine_actor.EngineActor(EngineSettings("")) for _ in range(count)]

    async def call(self, engine: int, method: str, *args: Any) -> Any:
        self.exchanges += method == "serve_batch"
        return await getattr(self.engines[engine], method)(*args)

    async def counts(self) -> tuple[int, int]:
        return os.getpid(), self.exchanges


@dataclass(frozen=True)
class Handle:
    """One engine of a host, in the place of an actor's handle."""

    host: Any
    engine: int
    method: str = ""

    def __getattr__(self, method: str) -> Handle:
        if method.startswith("_"):
            raise AttributeError(method)
        return Handle(self.host, self.engine, method)

    def remote(self, *args: Any) -> Any:
        return self.host.call.remote(self.engine, self.method, *args)


class SimulatedGroup(InferenceGroup):
    """The engines of a run, all in one host."""

    def __init__(self, count: int, speed: float) -> None:
        self.host = ray.remote(EngineHost).options(num_cpus=0, max_concurrency=100_000).remote(count, speed)
        super().__init__(EngineSettings(""), count)

    def _create(self, index: int) -> Any:
        return Handle(self.host, index)
