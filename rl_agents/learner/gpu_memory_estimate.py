"""GPU memory of a run by the formulas of docs/how-to/scale.md: calculated, not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rl_agents.algorithms import ALGORITHMS, Settings
from rl_agents.inference.model_shape import WIDTHS, ModelShape

GB = 1e9
#: Usable share of a GPU: the rest is CUDA's context, NCCL's buffers and fragmentation.
USABLE = 0.85
#: Maximum bytes of logits in a learner's memory: logits of more scored tokens are computed in pieces.
LOGITS_AT_ONCE = 2 << 30
#: Numbers of learners to try.
LEARNERS = (1, 2, 4, 8, 16, 32, 64)
#: Shapes of the models in recipes, from their config.json: layers, hidden, feed-forward, heads, KV heads, head
#: width, vocabulary, context, tied head. Feed-forward counts all experts.
KNOWN: Mapping[str, ModelShape] = {
    "Qwen2.5-1.5B-Instruct": ModelShape(28, 1536, 8960, 12, 2, 128, 151_936, 32_768, True),
    "Qwen2.5-3B-Instruct": ModelShape(36, 2048, 11_008, 16, 2, 128, 151_936, 32_768, True),
    "Qwen2.5-7B-Instruct": ModelShape(28, 3584, 18_944, 28, 4, 128, 152_064, 32_768, False),
    "Qwen2.5-32B": ModelShape(64, 5120, 27_648, 40, 8, 128, 152_064, 131_072, False),
    "Llama-3.3-70B-Instruct": ModelShape(80, 8192, 28_672, 64, 8, 128, 128_256, 131_072, False),
    "Qwen3-4B-Instruct-2507": ModelShape(36, 2560, 9728, 32, 8, 128, 151_936, 262_144, True),
    "Qwen3-14B": ModelShape(40, 5120, 17_408, 40, 8, 128, 151_936, 40_960, False),
    "Qwen3-30B-A3B-Thinking-2507": ModelShape(48, 2048, 128 * 768, 32, 4, 128, 151_936, 262_144, False),
}


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
