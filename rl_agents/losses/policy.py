"""Policy losses, one value per token. Advantages are constants; sampled tokens have mask 1.

Every function returns ``(loss, metrics)``: ``loss`` [rows, tokens], 0 on masked tokens, still to be summed with the
weights of `rl_agents.losses.aggregation`; ``metrics`` detached scalars, means over the sampled tokens.

  PPO         max(-A·ρ, -A·clip(ρ))                 ρ per token, step (StepPO) or sequence (GSPO)
  GSPO-token  as GSPO in value, but the gradient of every token flows through its own log-probability
  CISPO       -sg(clip(ρ))·A·lp                     no token ever loses its gradient
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rl_agents.losses.masks import masked, masked_mean, row_mean, segment_mean

Loss = tuple[Tensor, dict[str, Tensor]]
Level = Literal["token", "step", "sequence"]


def log_ratio(
    logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, *, level: Level = "token", segments: Tensor | None = None
) -> Tensor:
    """log ρ per token: d = lp - lp_old, averaged over the step or the row, then clamped to ±20 against overflow.

    The means make ρ the geometric mean of the token ratios, so that length does not blow it up.

    Args:
        level: ``token``: d_j (PPO);  ``step``: mean of d over the tokens of one interaction step (StepPO eq. 7);
            ``sequence``: mean of d over the row (GSPO). With one step per row the last two are equal.
        segments: [rows, tokens], step index of every sampled token; needed by ``step``.

    Returns:
        [rows, tokens], 0 on masked tokens; beyond the clamp there is no gradient.

    Raises:
        ValueError: a sampled token without a segment.
    """
    difference = masked(logprobs - old_logprobs, mask)
    if level == "step":
        assert segments is not None, "step ratios need segments"
        difference = segment_mean(difference, mask, segments)
    elif level == "sequence":
        difference = row_mean(difference, mask)
    return masked(difference.clamp(-20.0, 20.0), mask)


def clipped_surrogate(
    ratio: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float, dual_clip: float = 0.0
) -> Loss:
    """ℓ = max(-A·ρ, -A·clip(ρ, 1-ε_lo, 1+ε_hi)); with dual clip and A<0, ℓ = min(ℓ, -A·c).

    PPO (Schulman et al. 2017, eq. 7); DAPO's clip-higher is ε_hi > ε_lo; dual clip from Ye et al. 2020, eq. 5.

    Args:
        ratio: ρ [rows, tokens], carries the gradient.
        advantages, mask: [rows, tokens].
        clip_low, clip_high: ε_lo and ε_hi, distances from 1.
        dual_clip: c > 1 (verl: 3.0); 0 for no dual clip.
    """
    advantages = masked(advantages, mask).detach()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = torch.maximum(plain, clipped)
    metrics = {"clip_fraction": masked_mean((clipped > plain).to(ratio.dtype), mask).detach()}
    if dual_clip:
        bound = -advantages * dual_clip
        negative = advantages < 0
        capped = negative & (loss > bound)
        metrics["dual_clip_fraction"] = masked_mean(capped.to(ratio.dtype), mask).detach()
        loss = torch.where(negative, torch.minimum(loss, bound), loss)
    return masked(loss, mask), metrics


def _drift(log_rho: Tensor, logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """``ppo_kl`` = mean(lp_old - lp) and the mean ratio: how far the policy has moved since it sampled."""
    with torch.no_grad():
        return {
            "ppo_kl": masked_mean(old_logprobs - logprobs, mask),
            "ratio_mean": masked_mean(log_rho.exp(), mask),
        }


def ppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float = 0.0,
    level: Level = "token",
    segments: Tensor | None = None,
) -> Loss:
    """Clipped surrogate on ρ = exp(lp - lp_old) at the chosen level.

    ``token`` is PPO, ``step`` is StepPO (eq. 7-8), ``sequence`` is GSPO (Zheng et al. 2025, eq. 5-7). With a step or
    sequence ratio the loss is the same for all tokens of the step, so that weights 1/L per token (``step-mean``,
    ``step-mean-in-traj``, ``seq-mean-token-mean``) give the mean over steps or rows.

    Args:
        logprobs: lp under the current policy [rows, tokens], carries the gradient.
        old_logprobs: lp_old under the policy at the start of the batch.
        advantages: A per token; of ``step`` and ``sequence`` constant within the unit.
        mask: 1 on sampled tokens.
        clip_low, clip_high, dual_clip: see `clipped_surrogate`; geometric means move little, hence about 4e-4.
        level, segments: see `log_ratio`.

    Returns:
        Loss per token; metrics ``clip_fraction``, ``ppo_kl``, ``ratio_mean`` and, if used, ``dual_clip_fraction``.
    """
    log_rho = log_ratio(logprobs, old_logprobs, mask, level=level, segments=segments)
    loss, metrics = clipped_surrogate(
        log_rho.exp(), advantages, mask, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )
    return loss, metrics | _drift(log_rho, logprobs, old_logprobs, mask)


def gspo_token_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> Loss:
    """log s_{i,j} = sg(log s_i) + lp_j - sg(lp_j), at most 10, then the clipped surrogate (GSPO, eq. 14).

    Same value as `ppo_loss` with ``sequence`` and, under ``seq-mean-token-mean`` with a constant advantage, the same
    gradient; here the advantage may vary inside a row. Arguments as there.
    """
    shared = log_ratio(logprobs, old_logprobs, mask, level="sequence").detach()
    own = masked(logprobs, mask)
    log_rho = (shared + own - own.detach()).clamp(max=10.0)
    loss, metrics = clipped_surrogate(log_rho.exp(), advantages, mask, clip_low=clip_low, clip_high=clip_high)
    return loss, metrics | _drift(log_rho, logprobs, old_logprobs, mask)


def cispo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, *, clip_low: float, clip_high: float
) -> Loss:
    """ℓ_j = -sg(clip(ρ_j, 1-ε_lo, 1+ε_hi))·A_j·lp_j: PPO whose clip bounds the weight and keeps the gradient.

    CISPO (MiniMax-M1, Chen et al. 2025, eq. 4-5); aggregate with ``token-mean``. The value contains lp and is not
    comparable with PPO's.

    Args:
        logprobs, old_logprobs, advantages, mask: [rows, tokens].
        clip_low: ε_lo; at 1 or above the lower bound is inactive.
        clip_high: ε_hi.
    """
    log_rho = log_ratio(logprobs, old_logprobs, mask).detach()
    ratio = log_rho.exp()
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -weight * masked(advantages, mask).detach() * masked(logprobs, mask)
    metrics = {"clip_fraction": masked_mean((weight != ratio).to(ratio.dtype), mask)}
    return masked(loss, mask), metrics | _drift(log_rho, logprobs, old_logprobs, mask)
