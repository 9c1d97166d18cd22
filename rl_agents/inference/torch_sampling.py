"""Drawing tokens so that a request's tokens depend on its own seed only, whatever shares the batch."""

from __future__ import annotations

import numpy as np
import torch


def uniforms(seed: int, count: int) -> list[float]:
    """Return the ``count`` numbers in [0, 1) that decide a request's tokens: one per position.

    The generator is counter-based (Philox), so position ``i`` is the same however many are asked for.
    """
    return np.random.Generator(np.random.Philox(key=seed % 2**128)).random(count).tolist()


def draw(
    logits: torch.Tensor, temperature: torch.Tensor | None, top_p: torch.Tensor | None, uniform: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token per row by inverting the cumulative distribution.

    Args:
        logits: (rows, vocabulary).
        temperature: (rows,); 0 takes the most likely token, whose log-probability is that at temperature 1. None: all
            are 1.
        top_p: (rows,) nucleus mass; 1 is everything. None: all are 1.
        uniform: (rows,) float64 numbers in [0, 1).

    Returns:
        Token ids and their log-probabilities under the distribution that they were drawn from.
    """
    logits = logits.float()
    greedy = None if temperature is None else temperature == 0
    if temperature is not None and greedy is not None:
        logprobs = torch.log_softmax(logits / torch.where(greedy, 1.0, temperature)[:, None], dim=-1)
    else:
        logprobs = torch.log_softmax(logits, dim=-1)
    if top_p is not None:
        logprobs = _nucleus(logprobs, top_p)
    mass = logprobs.double().exp_().cumsum_(-1)
    tokens = torch.searchsorted(mass, uniform[:, None] * mass[:, -1:], right=True)
    tokens = tokens.clamp_(max=logits.shape[-1] - 1)
    if greedy is not None:
        tokens = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
    return tokens.squeeze(1), logprobs.gather(1, tokens).squeeze(1)


def _nucleus(logprobs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep the smallest set of tokens with at least ``top_p`` of the mass, and renormalise."""
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    mass_before = ordered.exp().cumsum(-1) - ordered.exp()
    dropped = (mass_before >= top_p[:, None]) & (top_p < 1)[:, None]
    dropped[:, 0] = False
    ordered = torch.log_softmax(ordered.masked_fill(dropped, float("-inf")), dim=-1)
    return torch.empty_like(logprobs).scatter_(1, order, ordered)
