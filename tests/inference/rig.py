"""An engine in an `EngineActor` behind a `RemoteEngine`, as a run uses it, and what tests ask of it."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import torch

from rl_agents.inference.base import Completion, EngineSettings, Sampling
from rl_agents.inference.client import RemoteEngine
from rl_agents.inference.engine_group import InferenceGroup
from rl_agents.inference.weights import pack

TOLERANCE = 1e-4
#: Words of the tokenizer; the models embed more ids.
VOCABULARY = 200
KINDS = ("torch", "vllm-inprocess", "vllm-async")


@dataclass
class Rig:
    """An engine under test and the reference model, which hold the same weights."""

    group: InferenceGroup
    engine: RemoteEngine
    kind: str
    reference: Any
    version: int = 0

    def run(self, *requests: tuple[list[int], Sampling]) -> list[Any]:
        """Generate all at the same time; an error stands in the place of its completion."""

        async def together() -> list[Any]:
            coroutines = [self.engine.generate(prompt, sampling) for prompt, sampling in requests]
            return await asyncio.gather(*coroutines, return_exceptions=True)

        return asyncio.run(together())

    def change_weights(self, seed: int) -> None:
        """Move every parameter, and push them."""
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.reference.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
        self.version += 1
        self.group.push_weights(pack(self.reference.state_dict()), self.version)

    def worst_logprob(self, prompt: list[int], completion: Completion, temperature: float = 1.0) -> float:
        """Return the largest distance from teacher forcing through Hugging Face."""
        expected = teacher(self.reference, prompt, completion.token_ids, temperature)
        return (expected - torch.tensor(completion.logprobs)).abs().max().item()


@torch.no_grad()
def teacher(model: Any, prompt: list[int], tokens: list[int], temperature: float = 1.0) -> torch.Tensor:
    logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


def settings(kind: str, model_dir: Path) -> EngineSettings:
    name, _, mode = kind.partition("-")
    return EngineSettings(
        str(model_dir), kind=name, mode=mode or "inprocess", max_model_len=256, max_batch=64, kv_cache_gb=0.0625
    )


def prompts(count: int, seed: int = 0, longest: int = 60) -> list[list[int]]:
    rng = random.Random(seed)
    return [[rng.randrange(3, 200) for _ in range(rng.randrange(5, longest))] for _ in range(count)]


def change_engine(rig: Rig, change: Callable[[Any], Any]) -> None:
    """Call ``change`` with the engine inside the actor."""
    ray.get(rig.group.handles()[0].apply.remote(lambda actor: change(actor._engine)))


def stats(handle: Any) -> dict[str, int]:
    """Totals of an engine since its start: sampled and cached tokens; and open requests."""

    def read(actor: Any) -> dict[str, int]:
        outstanding = sum(len(client.tasks) for client in actor._clients.values())
        return {
            "sampled_tokens": actor._engine.sampled_tokens,
            "cached_tokens": actor._engine.cached_tokens,
            "outstanding": outstanding,
        }

    found: dict[str, int] = ray.get(handle.apply.remote(read))
    return found
