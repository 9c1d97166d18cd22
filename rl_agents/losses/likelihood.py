"""Log-probabilities of given tokens, the entropy of their distribution, and supervised fine-tuning."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_agents.losses.masks import masked


def log_distribution(logits: Tensor, temperature: float) -> Tensor:
    """log p = log softmax(z / T) in float32, [..., vocabulary]; T > 0 is the sampling temperature of the rollouts."""
    return torch.log_softmax(at_least_float32(logits) / temperature, dim=-1)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return half precision as float32, and anything else as it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def token_entropy(log_probs: Tensor) -> Tensor:
    """H = -Σ_v p_v·log p_v over the full vocabulary, in nats; [..., vocabulary] to [...]."""
    return -(log_probs.exp() * log_probs).sum(-1)


def negative_log_likelihood(logprobs: Tensor, mask: Tensor) -> Tensor:
    """ℓ_j = -lp_j on assistant tokens: REINFORCE with advantage 1 on demonstrations instead of samples.

    Args:
        logprobs: [rows, tokens], carries the gradient.
        mask: 1 on assistant tokens (reasoning, tool calls, answers), 0 on prompts and tool outputs.

    Returns:
        [rows, tokens], nats, 0 on masked tokens. Aggregate with ``token-mean`` by default.
    """
    return masked(-logprobs, mask)
