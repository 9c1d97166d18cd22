"""Importance ratios between the current policy and the one that sampled, at token, step or sequence level.

The level is the only difference between PPO (token), StepPO (step) and GSPO (sequence): the last two take the
geometric mean of the token ratios over a step or over a row, so that length does not blow the ratio up.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Level = Literal["token", "step", "sequence"]


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


def segment_mean(x: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """Mean over the sampled tokens of every (row, segment), broadcast back to its tokens.

    Args:
        x: [rows, tokens].
        mask: [rows, tokens], 1 on sampled tokens.
        segments: [rows, tokens] int64, step index of every sampled token; negative elsewhere.

    Raises:
        ValueError: a sampled token belongs to no segment.
    """
    if bool(((segments < 0) & (mask > 0)).any()):
        raise ValueError("segments: a token with mask 1 has a negative segment")
    if x.numel() == 0:
        return x
    start = segments.clamp(min=0)
    width = int(start.max()) + 1
    index = (start + width * torch.arange(x.shape[0], device=x.device).unsqueeze(1)).flatten()
    empty = torch.zeros(x.shape[0] * width, dtype=x.dtype, device=x.device)
    total = empty.index_add(0, index, masked(x, mask).flatten())
    count = empty.index_add(0, index, (mask > 0).to(x.dtype).flatten())
    return masked((total / count.clamp(min=1))[index].view_as(x), mask)


def log_ratio(
    logprobs: Tensor,
    old_logprobs: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    segments: Tensor | None = None,
    clamp: float = 20.0,
) -> Tensor:
    """log ρ per token: d = lp - lp_old, averaged over the step or the row, then clamped to ±``clamp``.

    Args:
        level: ``token``: d_j;  ``step``: mean of d over the tokens of one interaction step (StepPO eq. 7);
            ``sequence``: mean of d over the row (GSPO). With one step per row the last two are equal.
        segments: step index of every token; needed by ``step`` when a row holds several steps. Without it every row
            is one step.
        clamp: bound on |log ρ| so that exp cannot overflow; the gradient outside is 0.

    Returns:
        [rows, tokens], 0 on masked tokens.

    Raises:
        ValueError: unknown level, or a sampled token without a segment.
    """
    difference = masked(logprobs - old_logprobs, mask)
    if level == "step" and segments is not None:
        difference = segment_mean(difference, mask, segments)
    elif level in ("step", "sequence"):
        difference = row_mean(difference, mask)
    elif level != "token":
        raise ValueError(f"unknown ratio level '{level}': valid: token, step, sequence")
    return masked(difference.clamp(-clamp, clamp), mask)


def importance_ratio(
    logprobs: Tensor,
    old_logprobs: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    segments: Tensor | None = None,
    clamp: float = 20.0,
) -> Tensor:
    """ρ = exp(clamp(log ρ)), 1 on masked tokens; see `log_ratio` for the levels and the arguments."""
    return log_ratio(logprobs, old_logprobs, mask, level=level, segments=segments, clamp=clamp).exp()
