"""What of a large model fits on 8 and on 64 GPUs of 80 GB: the tables of docs/how-to/scale.md, by its formulas.

    python -m benchmarks.gpu_memory

Memory is calculated, not measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.report import markdown
from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.inference.model_shape import WIDTHS, ModelShape
from rl_agents.learner.chunked_logprobs import LOGITS_AT_ONCE
from rl_agents.trainer.preflight import KNOWN

GB = 1e9
#: Usable share of a GPU: the rest is CUDA's context, NCCL's buffers and fragmentation.
USABLE = 0.85
#: Numbers of learners to try.
LEARNERS = (1, 2, 4, 8, 16, 32, 64)
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
class LearnerMemory:
    """GB of one learner's GPU.

    Attributes:
        state: weights, gradients and moments of policy and critic, reference and teacher; sharding divides it.
        passing: gathered weights and their gradients, activations and logits; sharding does not divide it.
        sending: of weights on their way to engines, between two updates: one layer, or embedding or head.
    """

    state: float
    passing: float
    sending: float

    @property
    def total(self) -> float:
        return self.state + max(self.passing, self.sending)


def learner_memory(settings: Settings, shape: ModelShape, learners: int, scored: int) -> LearnerMemory:
    """Return the memory of one of ``learners`` that share the weights.

    Args:
        scored: sampled tokens of a micro-batch; logits of many tokens are computed in pieces.
    """
    parameters, width = shape.parameters, WIDTHS[settings.dtype]
    sides = 7 * shape.hidden + 2 * shape.head_dim * (shape.heads + shape.kv_heads) + 3 * shape.feed_forward
    adapters = settings.lora_rank * shape.layers * sides
    trained = width * parameters + 16 * adapters if adapters else 16 * parameters
    critic = 16 * parameters if ALGORITHMS[settings.algo].critic else 0
    frozen = bool(settings.kl_coef or settings.kl_in_reward_coef) + bool(settings.teacher)  # as large as the policy
    reference = width * parameters * frozen
    table = shape.vocabulary * shape.hidden
    tables = table if shape.tied else 2 * table
    layer = (parameters - tables) / shape.layers
    gathered = width * (2 * layer + tables) if learners > 1 else 0
    # Gradients of what is gathered, and their float32 copy for the sum; those of the tables come last.
    summed = 0 if learners == 1 or settings.lora_rank else width + 4
    tokens = micro_batch(settings)
    inner = width * tokens * (8 * shape.hidden + 3 * active_feed_forward(shape))
    kept = width * tokens * kept_by_layer(settings, shape) * shape.layers
    activations = kept + inner if settings.activation_checkpointing != "none" else kept + inner * shape.layers
    logits = min((width + 12) * scored * shape.vocabulary, LOGITS_AT_ONCE)
    passing = gathered + max(activations + logits + summed * layer, summed * tables)
    sending = width * max(layer, table)
    return LearnerMemory((trained + critic + reference) / learners / GB, passing / GB, sending / GB)


def kept_by_layer(settings: Settings, shape: ModelShape) -> int:
    """Numbers that a layer keeps per token: its input, and with `selective` the outputs of products and attention."""
    if settings.activation_checkpointing != "selective":
        return shape.hidden
    return 2 * (shape.hidden + shape.heads * shape.head_dim + active_feed_forward(shape))


def micro_batch(settings: Settings) -> int:
    """Tokens of the largest forward pass: a row longer than a micro-batch is a pass of its own."""
    return max(settings.tokens_per_microbatch, settings.max_model_len)


def active_feed_forward(shape: ModelShape) -> int:
    """Feed-forward width per token; 8 of 128 experts are active, as in the known mixture."""
    return shape.feed_forward // 16 if shape.feed_forward > 16 * shape.hidden else shape.feed_forward


def engine_memory(settings: Settings, shape: ModelShape) -> tuple[float, float]:
    """Return GB of an engine's GPU for the weights, and for the KV cache of one whole context."""
    parts, width = settings.tensor_parallel, WIDTHS[settings.dtype]
    context = settings.max_model_len * shape.kv_bytes(settings.dtype)
    return width * shape.parameters / parts / GB, context / parts / GB


def fewest_learners(settings: Settings, shape: ModelShape, scored: int, gpu_gb: float) -> int | None:
    """Return the smallest number of sharded learners on GPUs of ``gpu_gb``; None if no number suffices."""
    return next(
        (n for n in LEARNERS if learner_memory(settings, shape, n, scored).total <= USABLE * gpu_gb),
        None,
    )


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
        most = max(n for n in LEARNERS if n < found.gpus)
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
