"""Entropy of the token distribution and its bonus."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_agents.objectives.ratio import masked


def token_entropy(logits: Tensor, *, temperature: float = 1.0) -> Tensor:
    """H = -Σ_v p_v·log p_v over the full vocabulary, p = softmax(logits / T).

    Computed as logsumexp(z) - Σ p·z, which needs no logarithm of p. A logit of -inf means probability 0.

    Args:
        logits: [..., vocabulary].
        temperature: T > 0, the training temperature.

    Returns:
        [...], nats.

    Raises:
        ValueError: temperature not positive.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    scaled = logits / temperature
    scaled = scaled - scaled.detach().amax(dim=-1, keepdim=True)  # large logits would cancel in float32
    finite = torch.where(torch.isinf(scaled), torch.zeros_like(scaled), scaled)
    return torch.logsumexp(scaled, dim=-1) - (torch.softmax(scaled, dim=-1) * finite).sum(-1)


def entropy_loss(entropy: Tensor, mask: Tensor, coefficient: float = 0.0) -> Tensor:
    """ℓ_j = -c_H·H_j, to be added to the policy loss with the same weights: more entropy, lower loss.

    Args:
        entropy: H [rows, tokens], nats.
        mask: 1 on sampled tokens.
        coefficient: c_H, default 0 as in verl and all StepPO scripts.
    """
    return masked(-coefficient * entropy, mask)
