"""Attention of packed rows in one call of a kernel for sequences of varying lengths: PyTorch's own FlashAttention.

A segment is a branch of the trie (`rl_agents.learner.prefix_attention`): own tokens, which are consecutive in the
packed sequence, and the keys of its whole path, the last of which are its own. A query sees keys up to itself:
FlashAttention's causal mask, aligned at the lower right. If rows share nothing, paths are the rows and keys need no
copies. Nothing is padded.

The kernel needs a GPU and half precision. Before its first use it is compared with PyTorch's attention on two small
segments, because it was developed without a GPU. If it fails or differs, attention is computed branch by branch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_agents.learner.prefix_sharing import Walk

logger = logging.getLogger(__name__)
#: Maximum width of a head in the kernel.
WIDEST_HEAD = 256
#: Maximum difference from PyTorch's attention on the probe, whose outputs are of size one, in bfloat16.
PROBE_ERROR = 0.05
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Segments:
    """Concatenated own tokens and paths of all segments.

    Attributes:
        keys: [k], positions of the paths' tokens in the packed sequence; None: the sequence itself, in order.
        query_ends, key_ends: [segments + 1], int32, cumulative lengths from 0.
        longest_query, longest_key: maximum lengths.
    """

    keys: Tensor | None
    query_ends: Tensor
    key_ends: Tensor
    longest_query: int
    longest_key: int


def segments_of(trie: Walk, paths: list[NDArray[np.int64]], device: torch.device | str) -> Segments:
    """Build the segments of a packed batch.

    Args:
        trie: rows, whose own tokens are packed in this order.
        paths: positions of every row's tokens, by row.
    """
    own = np.array(trie.lengths) - np.array(trie.shared)
    places = np.flatnonzero(own)
    lengths = np.array(trie.lengths)[places]
    copied = np.array(trie.shared)[places].any()
    path = np.concatenate([paths[trie.order[place]] for place in places]) if copied else None

    def ends(sizes: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)).to(device)

    return Segments(
        keys=None if path is None else torch.from_numpy(path).to(device),
        query_ends=ends(own[places]),
        key_ends=ends(lengths),
        longest_query=int(own.max()),
        longest_key=int(lengths.max()),
    )


def varlen_attention(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, half: torch.dtype, scale: float | None
) -> Tensor:
    """Compute the attention of all segments.

    Args:
        query, key, value: [1, heads, n, width of a head]; keys and values may have fewer heads.
        half: precision of the kernel.
        scale: factor on products of queries and keys; None: 1 / sqrt(width of a head).

    Returns:
        [1, n, heads, width of a head] in ``half``.
    """
    from torch.nn.attention import varlen

    lines = [tensor[0].transpose(0, 1).to(half) for tensor in (query, key, value)]
    if segments.keys is not None:
        lines[1:] = [tensor.index_select(0, segments.keys) for tensor in lines[1:]]
    output = varlen.varlen_attn(
        *(tensor.contiguous() for tensor in lines), segments.query_ends, segments.key_ends,
        segments.longest_query, segments.longest_key,
        scale=scale, window_size=(-1, 0), enable_gqa=query.shape[1] != key.shape[1],
    )  # fmt: skip
    return output[None]  # type: ignore[index]


def kernel_type(query: Tensor) -> torch.dtype | None:
    """Return the kernel's precision for a query if it `works`; None: it does not support the query."""
    kind = query.device.type
    half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
    return half if half in HALF and query.shape[-1] <= WIDEST_HEAD else None


@lru_cache
def works(device: torch.device) -> bool:
    """Whether the kernel agrees with PyTorch's attention; logged once if not.

    Do not call this within a forward pass: selective checkpointing would treat the probe's attention as a layer's.
    """
    if device.type != "cuda":
        return False
    try:
        error = probe(device, torch.bfloat16)
    except (ImportError, AttributeError, TypeError, RuntimeError) as failure:
        logger.warning("packed rows without FlashAttention's kernel, with PyTorch's attention instead: %s", failure)
        return False
    if error > PROBE_ERROR:
        logger.warning("packed rows without FlashAttention's kernel: its result is off by %.2g on a probe", error)
    return error <= PROBE_ERROR


def probe(device: torch.device | str, half: torch.dtype) -> float:
    """Return the largest relative difference to `by_segment`, also of gradients, on a row of 5 tokens and a branch."""
    places = [np.arange(5), np.concatenate([np.arange(4), np.arange(5, 8)])]
    segments = segments_of(Walk([0, 1], [0, 4], [5, 7]), places, device)
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(1, heads, 8, 64, generator=generator) for heads in (4, 2, 2)]
    results = []
    with torch.enable_grad(), torch.autocast(torch.device(device).type, enabled=False):
        attentions: tuple[Callable[..., Tensor], ...] = (varlen_attention, by_segment)
        for attention in attentions:
            inputs = [draw.to(device, half).requires_grad_() for draw in draws]
            output = attention(*inputs, segments, half, None)
            gradients = torch.autograd.grad(output.float().square().sum(), inputs)
            results.append(torch.cat([tensor.float().flatten() for tensor in (output.detach(), *gradients)]))
    return float((results[0] - results[1]).abs().max() / results[1].abs().max())


def by_segment(
    query: Tensor, key: Tensor, value: Tensor, segments: Segments, half: torch.dtype, scale: float | None
) -> Tensor:
    """Compute `varlen_attention` with PyTorch's attention, one segment at a time: slow, for comparisons."""
    outputs = []
    for segment, (start, end) in enumerate(pairwise(segments.query_ends.tolist())):
        low, high = segments.key_ends[segment : segment + 2].tolist()
        places = torch.arange(low, high, device=query.device) if segments.keys is None else segments.keys[low:high]
        own = torch.arange(high - low - (end - start), high - low, device=query.device)
        outputs.append(
            torch.nn.functional.scaled_dot_product_attention(
                query[:, :, start:end].to(half),
                key[:, :, places].to(half),
                value[:, :, places].to(half),
                torch.arange(high - low, device=query.device) <= own[:, None],
                scale=scale,
                enable_gqa=query.shape[1] != key.shape[1],
            )
        )
    return torch.cat(outputs, 2).transpose(1, 2)
