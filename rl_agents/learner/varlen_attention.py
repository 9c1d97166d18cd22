"""Attention of packed rows in one call of a kernel for sequences of varying lengths: PyTorch's own FlashAttention.

A segment is a branch of the trie (learner/prefix_attention.py): own tokens, which are consecutive in the
packed sequence, and the keys of its whole path, whose last ones are its own. A query sees keys up to itself: the causal
mask aligned at the lower right, which is what FlashAttention means by causal. Where rows share nothing, paths are the
rows and keys need no copies; nothing is padded.

The kernel wants a GPU and half precision. Before its first use it is compared with PyTorch's attention on two little
segments, because it was developed without a GPU; where it fails or differs, the calls by branches are used.
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
#: Widest head that the kernel takes.
WIDEST_HEAD = 256
#: How far the kernel may be from PyTorch's attention on the probe, whose outputs are of size one, in bfloat16.
PROBE_ERROR = 0.05
HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Segments:
    """Own tokens and paths of all segments, one segment behind another.

    Attributes:
        keys: [k], places of the paths' tokens in the packed sequence; None: the sequence itself, in its order.
        query_ends, key_ends: [segments + 1], int32, sums of lengths up to each segment, from 0.
        longest_query, longest_key: of all segments.
    """

    keys: Tensor | None
    query_ends: Tensor
    key_ends: Tensor
    longest_query: int
    longest_key: int


def segments_of(trie: Walk, paths: list[NDArray[np.int64]], device: torch.device | str) -> Segments:
    """Segments of a packed batch.

    Args:
        trie: rows, whose own tokens are packed in this order.
        paths: places of every row's tokens, by row.
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
    """Attention of all segments.

    Args:
        query, key, value: [1, heads, n, width of a head]; keys and values may have fewer heads.
        half: precision of the kernel.
        scale: of products of queries and keys; None: 1 / sqrt(width of a head).

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
    """Precision in which the kernel computes here, where it `works`; None: it does not."""
    kind = query.device.type
    half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else query.dtype
    return half if half in HALF and query.shape[-1] <= WIDEST_HEAD else None


@lru_cache
def works(device: torch.device) -> bool:
    """Whether the kernel gives what PyTorch's attention does; said once in the log where not.

    Not to be asked within a forward pass: selective recompute would take the probe's attention for a layer's.
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
    """Largest relative difference to `by_segment`, gradients too, on a row of 5 tokens and a branch of 3 beyond 4."""
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
    """As `varlen_attention` by PyTorch's attention, a segment at a time: slow, for comparisons."""
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
