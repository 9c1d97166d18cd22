"""Sums over sampled tokens: other tokens count for nothing, regardless of their values."""

from __future__ import annotations

import torch
from torch import Tensor


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return ``x`` where ``mask`` is set and 0 elsewhere, safe against NaN and inf in value and in gradient."""
    return torch.where(mask > 0, x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Σ m·x / max(Σ m, 1): the mean over the sampled tokens, 0 when there is none."""
    return masked(x, mask).sum() / (mask > 0).sum().clamp(min=1)


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over the sampled tokens of every row, broadcast back to [rows, tokens]; an empty row gives 0."""
    count = (mask > 0).sum(-1, keepdim=True).clamp(min=1)
    return (masked(x, mask).sum(-1, keepdim=True) / count).expand_as(x)


def segment_sum(x: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """Sum over the sampled tokens of every (row, segment), broadcast back to its tokens; 0 on masked tokens.

    Args:
        x, mask: [rows, tokens].
        segments: [rows, tokens] int64, step index of every sampled token; negative elsewhere.

    Raises:
        ValueError: a sampled token belongs to no segment.
    """
    index, empty = _segments(x, mask, segments)
    return masked(empty.index_add(0, index, masked(x, mask).flatten())[index].view_as(x), mask)


def segment_mean(x: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """Mean over the sampled tokens of every (row, segment), broadcast back to its tokens; 0 on masked tokens.

    Arguments and errors are those of `segment_sum`.
    """
    index, empty = _segments(x, mask, segments)
    total = empty.index_add(0, index, masked(x, mask).flatten())
    count = empty.index_add(0, index, (mask > 0).to(x.dtype).flatten())
    return masked((total / count.clamp(min=1))[index].view_as(x), mask)


def _segments(x: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of every token's (row, segment), flat, and zeros to add up in, one per number."""
    if bool(((segments < 0) & (mask > 0)).any()):
        raise ValueError("segments: a token with mask 1 has a negative segment")
    start = segments.clamp(min=0)
    width = int(start.max()) + 1 if x.numel() else 0
    index = (start + width * torch.arange(x.shape[0], device=x.device).unsqueeze(1)).flatten()
    return index, torch.zeros(x.shape[0] * width, dtype=x.dtype, device=x.device)
