"""What vLLM's checksums of its parameters must be, given the learner's weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from rl_agents.inference.base import Weights

#: vLLM's fused parameters of decoders, and the ones of the checkpoint that they hold, in this order.
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
#: vLLM pads the vocabulary to a multiple of this, with zeros.
VOCABULARY_STEP = 64


def expected(weights: Weights, dtype: str, held_as: torch.dtype | None = None) -> dict[str, str]:
    """Return the SHA-256 of each of vLLM's parameters, for one worker that holds whole tensors.

    Args:
        weights: the learner's, by Hugging Face name.
        dtype: of the engine.
        held_as: what the engine keeps values of ``dtype`` in; None: in ``dtype``.
    """
    own = getattr(torch, dtype)
    parts = {name: tensor.detach().to("cpu", own).to(held_as or own) for name, tensor in weights.items()}
    for fused, names in FUSED.items():
        for first in [name for name in parts if f".{names[0]}." in name]:
            pieces = [parts.pop(first.replace(f".{names[0]}.", f".{name}.")) for name in names]
            parts[first.replace(f".{names[0]}.", f".{fused}.")] = torch.cat(pieces)
    return {name: _sha256(_padded(name, tensor)) for name, tensor in parts.items()}


def differing(weights: Weights, dtype: str, found: Mapping[str, str]) -> tuple[list[str], int]:
    """Compare an engine's checksums with the learner's weights.

    Args:
        weights: the learner's.
        dtype: of the engine.
        found: `EngineActor.weight_checksums` of one worker.

    Returns:
        The parameters that differ, and how many could be compared: vLLM on a CPU packs matrices away. On a CPU with
        AMX it keeps the biases of small bfloat16 layers in float32, which counts as equal.
    """
    wanted, wider = expected(weights, dtype), expected(weights, dtype, torch.float32)
    named = {name.rpartition(":")[2]: digest for name, digest in found.items()}
    both = wanted.keys() & named.keys()
    return sorted(name for name in both if named[name] not in {wanted[name], wider[name]}), len(both)


def _padded(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Add the rows that vLLM adds to a vocabulary."""
    if not name.endswith(("embed_tokens.weight", "lm_head.weight")):
        return tensor
    return torch.nn.functional.pad(tensor, (0, 0, 0, -len(tensor) % VOCABULARY_STEP))


def _sha256(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(-1).view(torch.uint8).numpy()).hexdigest()
