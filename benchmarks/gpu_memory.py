"""What of a large model fits on 8 and on 64 GPUs of 80 GB, by `rl_agents.learner.gpu_memory_estimate`.

    python -m benchmarks.gpu_memory

It prints the tables of docs/how-to/scale.md. Memory is calculated, not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.report import markdown
from rl_agents.config import Settings
from rl_agents.inference.model_shape import WIDTHS, ModelShape
from rl_agents.learner.gpu_memory_estimate import (
    GB,
    KNOWN,
    USABLE,
    engine_memory,
    fewest_learners,
    learner_memory,
)

GPU_GB = 80.0
GPUS = (8, 64)
MODELS = {"32B": "Qwen2.5-32B", "70B": "Llama-3.3-70B-Instruct"}
#: Keys of all rows; GRPO without a reference model.
COMMON: dict[str, Any] = {
    "algo": "grpo", "env": "guess_numbers", "engine": "vllm", "dtype": "bfloat16", "activation_checkpointing": "full",
    "tokens_per_microbatch": 8192, "max_model_len": 8192, "max_response_tokens": 512, "old_logprobs": "learner",
    "sequence_packing": True, "tasks_per_iteration": 64, "group_size": 8, "lr": 1e-6,
}  # fmt: skip
#: Scored tokens of a micro-batch.
SCORED = 4096
ADAPTERS = 32
#: Episodes of `max_model_len` that an engine should hold at the same time, at least.
CONTEXTS = 16


@dataclass(frozen=True)
class Plan:
    """A run on a number of GPUs; ``learners`` None: no number of learners leaves GPUs for an engine."""

    model: str
    gpus: int
    rank: int
    learners: int | None
    parts: int

    @property
    def shape(self) -> ModelShape:
        return KNOWN[MODELS[self.model]]

    @property
    def engines(self) -> int:
        return (self.gpus - (self.learners or 0)) // self.parts

    def keys(self) -> dict[str, Any]:
        adapters = {"lora_rank": self.rank} if self.rank else {}
        learners = {"num_learners": self.learners, "gpus_per_learner": 1, "learner_sharding": "fsdp"}
        engines = {"num_engines": self.engines, "tensor_parallel": self.parts, "gpus_per_engine": self.parts}
        return {**adapters, **learners, **engines, "engine_mode": "async"}


def settings_of(model: str, **keys: Any) -> Settings:
    return Settings.from_dict({**COMMON, "model": MODELS[model], **keys})


def plan(model: str, gpus: int, rank: int) -> Plan:
    """Return the plan with the fewest learners, and engines with the fewest GPUs that hold weights and `CONTEXTS`."""
    shape, settings = KNOWN[MODELS[model]], settings_of(model, lora_rank=rank, num_learners=2)
    learners = fewest_learners(settings, shape, SCORED, GPU_GB)
    parts = next(n for n in (1, 2, 4, 8) if contexts(with_parts(model, n), shape) >= CONTEXTS)
    return Plan(model, gpus, rank, learners if learners and learners + parts <= gpus else None, parts)


def contexts(settings: Settings, shape: ModelShape) -> int:
    """Return the number of whole contexts that an engine's cache holds beside its weights."""
    weights, context = engine_memory(settings, shape)
    return int((USABLE * GPU_GB - weights) / context)


def with_parts(model: str, parts: int) -> Settings:
    return settings_of(model, tensor_parallel=parts, engine_mode="async", gpus_per_engine=parts)


def plans() -> Iterator[Plan]:
    return (plan(model, gpus, rank) for model in MODELS for gpus in GPUS for rank in (0, ADAPTERS))


def fits() -> str:
    """Return the table of what fits, with the keys."""
    return markdown(("model", "GPUs", "trained", "keys", "GB a learner", "GB an engine's GPU"), map(row, plans()))


def row(found: Plan) -> tuple[str, ...]:
    trained = f"adapters (rank {found.rank})" if found.rank else "all weights"
    head = (found.model, str(found.gpus), trained)
    settings = settings_of(found.model, lora_rank=found.rank, num_learners=2)
    if found.learners is None:
        most = max(n for n in (1, 2, 4, 8, 16, 32, 64) if n < found.gpus)
        needed = learner_memory(settings, found.shape, most, SCORED).total
        return (*head, "does not fit", f"{needed:.0f} with {most} learners", "")
    memory = learner_memory(settings, found.shape, found.learners, SCORED)
    engine = with_parts(found.model, found.parts)
    weights, room = engine_memory(engine, found.shape)[0], contexts(engine, found.shape)
    keys = " ".join(f"{name}={value}" for name, value in found.keys().items())
    learner = f"{memory.state:.0f} + {memory.passing:.0f} = {memory.total:.0f}"
    return (*head, f"`{keys}`", learner, f"{weights:.0f}, and {room} contexts")


def host() -> str:
    """Return the table of CPU memory in GB: what a learner loads at the start, copies of weights, and a checkpoint."""
    lines = []
    for model in MODELS:
        parameters = KNOWN[MODELS[model]].parameters / GB
        width = WIDTHS["bfloat16"]
        sizes = (4 * parameters, width * parameters, width * parameters, 12 * parameters)
        lines.append((model, *(f"{size:.0f}" for size in sizes)))
    titles = ("model", "start of a learner, all weights", "start of a learner, adapters")
    return markdown((*titles, "a node's copy of the engines' weights", "training state in a checkpoint"), lines)


def main() -> None:
    print(fits(), host(), sep="\n\n")


if __name__ == "__main__":
    main()
