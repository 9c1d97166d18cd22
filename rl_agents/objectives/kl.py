"""Kullback-Leibler penalties against a reference policy: in the loss, or in the reward before advantages.

With x = lp - lp_ref and tokens sampled from π, k1, k3 estimate KL(π‖π_ref) without bias; as a loss term only k2 (and k3
with the gradient of k2) has the gradient of the KL, while k1 differentiated through lp has mean zero (Schulman,
"Approximating KL divergence", 2020). Use one of the two places, never both.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rl_agents.objectives.ratio import masked

Estimator = Literal["k1", "abs", "k2", "k3", "k3+"]


def _estimate(x: Tensor, kind: str, clamp: float | None, cap: float | None) -> Tensor:
    if kind == "k1":
        return x
    if kind == "abs":
        return x.abs()
    if kind == "k2":
        return 0.5 * x.square()
    if kind == "k3":
        bounded = x if clamp is None else x.clamp(-clamp, clamp)
        value = torch.expm1(-bounded) + bounded
        return value if cap is None else value.clamp(-cap, cap)
    if kind == "k3+":
        slope = 0.5 * x.square()
        return _estimate(x.detach(), "k3", clamp, cap) + slope - slope.detach()
    raise ValueError(f"unknown KL estimator '{kind}': valid: k1, abs, k2, k3, k3+")


def kl_penalty(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    mask: Tensor,
    kind: Estimator = "k3",
    *,
    clamp: float | None = 20.0,
    cap: float | None = 10.0,
    score_function: bool = False,
    rollout_logprobs: Tensor | None = None,
) -> Tensor:
    """k1 = x;  abs = |x|;  k2 = x²/2;  k3 = e^{-x} + x - 1;  k3+ = value of k3 with the gradient of k2.

    Multiply by β and aggregate exactly as the policy loss. β = 0 must skip the reference forward altogether.

    Args:
        logprobs: lp under the current policy [rows, tokens], carries the gradient.
        reference_logprobs: lp_ref [rows, tokens], a constant.
        mask: 1 on sampled tokens.
        kind: estimator, default k3 ("low variance").
        clamp: bound on |x| before the exponential of k3; None for none.
        cap: bound on the k3 value; None for none. Beyond either bound k3 has no gradient.
        score_function: multiply by exp(lp - sg(lp)), which adds the term k·∇lp (NeMo-RL).
        rollout_logprobs: multiply by exp(lp - lp_roll) instead (NeMo-RL, KL of the current policy from old samples).

    Returns:
        [rows, tokens], nats, 0 on masked tokens.

    Raises:
        ValueError: unknown estimator.
    """
    x = masked(logprobs - reference_logprobs.detach(), mask)
    value = _estimate(x, kind, clamp, cap)
    if rollout_logprobs is not None:
        value = value * masked(logprobs - rollout_logprobs.detach(), mask).clamp(-20.0, 20.0).exp()
    elif score_function:
        own = masked(logprobs, mask)
        value = value * (own - own.detach()).exp()
    return masked(value, mask)


def kl_in_reward(
    scores: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor,
    mask: Tensor,
    beta: float,
    kind: Estimator = "k1",
) -> Tensor:
    """r_j = score_j - β·k(lp_old, lp_ref)_j per token, before advantage estimation (Ouyang et al. 2022, eq. 2).

    Unlike KL in the loss it is credited to earlier tokens by the return; a group estimator (GRPO) sees only its sum.

    Args:
        scores: task reward per token [rows, tokens], usually non-zero on the last sampled token only.
        old_logprobs, reference_logprobs, mask: [rows, tokens].
        beta: β >= 0.

    Returns:
        [rows, tokens], detached, 0 on masked tokens.
    """
    with torch.no_grad():
        penalty = kl_penalty(old_logprobs, reference_logprobs, mask, kind)
        return masked(scores, mask) - beta * penalty


def adaptive_coefficient(
    beta: float, kl: float, samples: int, *, target: float = 0.1, horizon: float = 10_000.0
) -> float:
    """β ← β·(1 + clip(KL/target - 1, -0.2, 0.2)·n/horizon) (Ziegler et al. 2019, section 2.2).

    A constant β is the case horizon → ∞.

    Args:
        beta: current coefficient.
        kl: mean KL of the batch, nats.
        samples: n, number of rows in the batch.
        target: KL to hold.
        horizon: rows over which β moves by its own size.

    Raises:
        ValueError: target or horizon not positive.
    """
    if target <= 0 or horizon <= 0:
        raise ValueError(f"target and horizon must be positive, got {target} and {horizon}")
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return beta * (1.0 + error * samples / horizon)
