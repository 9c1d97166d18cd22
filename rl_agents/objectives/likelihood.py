"""Log-probabilities of given tokens, and supervised fine-tuning on them."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_agents.objectives.ratio import masked


def next_token_logprobs(logits: Tensor, ids: Tensor, *, temperature: float = 1.0) -> Tensor:
    """lp_j = log softmax(logits_{j-1} / T)[ids_j]: the token at j is predicted from the position before it.

    Args:
        logits: [rows, tokens, vocabulary].
        ids: [rows, tokens] int64.
        temperature: T > 0, the sampling temperature of the rollouts (1 for supervised training).

    Returns:
        [rows, tokens]; position 0 has no prediction and holds 0, so mask it.

    Raises:
        ValueError: temperature not positive.
    """
    if temperature <= 0:
        raise ValueError(f"temperature must be positive, got {temperature}")
    scaled = logits[:, :-1] / temperature
    chosen = scaled.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    logprobs = chosen - torch.logsumexp(scaled, dim=-1)
    return torch.cat([torch.zeros_like(logprobs[:, :1]), logprobs], dim=1)


def negative_log_likelihood(logprobs: Tensor, mask: Tensor) -> Tensor:
    """ℓ_j = -lp_j on assistant tokens: REINFORCE with advantage 1 on demonstrations instead of samples.

    Args:
        logprobs: [rows, tokens], carries the gradient.
        mask: 1 on assistant tokens (reasoning, tool calls, answers), 0 on prompts and tool outputs.

    Returns:
        [rows, tokens], nats, 0 on masked tokens. Aggregate with ``token-mean`` by default.
    """
    return masked(-logprobs, mask)
