"""Policy losses, one value per token. Advantages are constants; sampled tokens have mask 1.

Every function returns ``(loss, metrics)``: ``loss`` [rows, tokens], 0 on masked tokens, still to be summed with the
weights of `rl_agents.objectives.aggregation`; ``metrics`` detached scalars, means over the sampled tokens.

  REINFORCE   -A·lp
  PPO         max(-A·ρ, -A·clip(ρ))                 ρ per token, step (StepPO) or sequence (GSPO)
  GSPO-token  as GSPO in value, but the gradient of every token flows through its own log-probability
  CISPO       -sg(clip(ρ))·A·lp                     no token ever loses its gradient
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_agents.objectives.ratio import Level, log_ratio, masked, masked_mean

Loss = tuple[Tensor, dict[str, Tensor]]


def reinforce_loss(logprobs: Tensor, advantages: Tensor, mask: Tensor) -> Loss:
    """ℓ_j = -A_j·lp_j (Williams 1992): PPO without ratio and clip, exact only on fresh samples.

    Args:
        logprobs, advantages, mask: [rows, tokens].
    """
    advantages = masked(advantages, mask).detach()
    return masked(-advantages * masked(logprobs, mask), mask), {}


def clipped_surrogate(
    ratio: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Loss:
    """ℓ = max(-A·ρ, -A·clip(ρ, 1-ε_lo, 1+ε_hi)); with dual clip and A<0, ℓ = min(ℓ, -A·c).

    PPO (Schulman et al. 2017, eq. 7); DAPO's clip-higher is ε_hi > ε_lo; dual clip from Ye et al. 2020, eq. 5.

    Args:
        ratio: ρ [rows, tokens], carries the gradient.
        advantages, mask: [rows, tokens].
        clip_low, clip_high: ε_lo and ε_hi, distances from 1.
        dual_clip: c > 1, or None for no dual clip (verl: 3.0).

    Raises:
        ValueError: c <= 1.
    """
    if dual_clip is not None and dual_clip <= 1.0:
        raise ValueError(f"dual_clip must be greater than 1, got {dual_clip}")
    advantages = masked(advantages, mask).detach()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = torch.maximum(plain, clipped)
    metrics = {"clip_fraction": masked_mean((clipped > plain).to(ratio.dtype), mask).detach()}
    if dual_clip is not None:
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
    level: Level = "token",
    segments: Tensor | None = None,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
) -> Loss:
    """Clipped surrogate on ρ = exp(lp - lp_old) at the chosen level.

    ``token`` is PPO, ``step`` is StepPO (eq. 7-8), ``sequence`` is GSPO. With a step or sequence ratio the loss is the
    same for all tokens of the step, so that weights 1/L per token (``step-mean``, ``step-mean-in-traj``,
    ``seq-mean-token-mean``) give the mean over steps or rows.

    Args:
        logprobs: lp under the current policy [rows, tokens], carries the gradient.
        old_logprobs: lp_old under the policy at the start of the batch.
        advantages: A per token.
        mask: 1 on sampled tokens.
        level: see `rl_agents.objectives.ratio.log_ratio`.
        segments: step index of every token, for ``step`` on rows with several steps.
        clip_low, clip_high, dual_clip: see `clipped_surrogate`.

    Returns:
        Loss per token; metrics ``clip_fraction``, ``ppo_kl``, ``ratio_mean`` and, if used, ``dual_clip_fraction``.
    """
    log_rho = log_ratio(logprobs, old_logprobs, mask, level=level, segments=segments)
    loss, metrics = clipped_surrogate(
        log_rho.exp(), advantages, mask, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip
    )
    return loss, metrics | _drift(log_rho, logprobs, old_logprobs, mask)


def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Loss:
    """s_i = exp(mean_j(lp - lp_old)); ℓ = max(-A·s, -A·clip(s)): GRPO with one ratio per sequence.

    GSPO (Zheng et al. 2025, eq. 5-7). Sum with ``seq-mean-token-mean`` weights to get the mean over rows. No dual clip.

    Args:
        logprobs, old_logprobs, advantages, mask: [rows, tokens]; A is constant within a row.
        clip_low, clip_high: ε_lo and ε_hi; geometric means move little, hence about 4e-4.
    """
    return ppo_loss(logprobs, old_logprobs, advantages, mask, level="sequence", clip_low=clip_low, clip_high=clip_high)


def gspo_token_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    level: Level = "sequence",
    segments: Tensor | None = None,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    clamp_max: float = 10.0,
) -> Loss:
    """log s_{i,j} = sg(log s_i) + lp_j - sg(lp_j), then the clipped surrogate (GSPO, eq. 14).

    Same value as `gspo_loss` and, under ``seq-mean-token-mean`` with a constant advantage, the same gradient; here the
    advantage may vary inside a row.

    Args:
        logprobs, old_logprobs, advantages, mask: [rows, tokens].
        level, segments: ``step`` gives the same form per interaction step.
        clamp_max: upper bound on log s.
    """
    shared = log_ratio(logprobs, old_logprobs, mask, level=level, segments=segments).detach()
    own = masked(logprobs, mask)
    log_rho = (shared + own - own.detach()).clamp(max=clamp_max)
    loss, metrics = clipped_surrogate(log_rho.exp(), advantages, mask, clip_low=clip_low, clip_high=clip_high)
    return loss, metrics | _drift(log_rho, logprobs, old_logprobs, mask)


def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    level: Level = "token",
    segments: Tensor | None = None,
    clip_low: float = 10.0,
    clip_high: float = 0.2,
) -> Loss:
    """ℓ_j = -sg(clip(ρ_j, 1-ε_lo, 1+ε_hi))·A_j·lp_j: PPO whose clip bounds the weight and keeps the gradient.

    CISPO (MiniMax-M1, Chen et al. 2025, eq. 4-5); aggregate with ``token-mean``. The value contains lp and is not
    comparable with PPO's.

    Args:
        logprobs, old_logprobs, advantages, mask: [rows, tokens].
        clip_low: ε_lo; at 1 or above the lower bound is inactive.
        clip_high: ε_hi.
    """
    log_rho = log_ratio(logprobs, old_logprobs, mask, level=level, segments=segments).detach()
    ratio = log_rho.exp()
    weight = ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    loss = -weight * masked(advantages, mask).detach() * masked(logprobs, mask)
    metrics = {"clip_fraction": masked_mean((weight != ratio).to(ratio.dtype), mask)}
    return masked(loss, mask), metrics | _drift(log_rho, logprobs, old_logprobs, mask)
