"""Critic loss."""

from __future__ import annotations

import torch
from torch import Tensor

from rl_agents.losses.masks import masked, masked_mean

Loss = tuple[Tensor, dict[str, Tensor]]


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None
) -> Loss:
    """ℓ_j = ½·max((V - G)², (clip(V, V_old - c, V_old + c) - G)²): the pessimistic twin of PPO's ratio clip.

    Token PPO sets the mask on all sampled tokens; StepPO on one position per step, the last prompt token.

    Args:
        values: V under the current critic [rows, tokens], carries the gradient.
        old_values: V_old at the start of the batch.
        returns: G = A + V_old with A before whitening.
        mask: 1 where the critic is trained.
        clip: c in units of return (verl default 0.5); None for the plain squared error.

    Returns:
        Loss per token, 0 on masked tokens; metrics ``value_clip_fraction``, ``value_mean`` and ``value_error``, the
        mean of V - G.
    """
    values, old_values = masked(values, mask), masked(old_values, mask).detach()
    returns = masked(returns, mask).detach()
    plain = (values - returns).square()
    loss, clipped_share = plain, torch.zeros_like(plain)
    if clip is not None:
        bounded = torch.maximum(torch.minimum(values, old_values + clip), old_values - clip)
        clipped = (bounded - returns).square()
        loss, clipped_share = torch.maximum(plain, clipped), (clipped > plain).to(plain.dtype)
    with torch.no_grad():
        metrics = {
            "value_clip_fraction": masked_mean(clipped_share, mask),
            "value_mean": masked_mean(values, mask),
            "value_error": masked_mean(values - returns, mask),
        }
    return masked(0.5 * loss, mask), metrics
