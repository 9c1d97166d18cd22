"""Kullback-Leibler penalties against a reference policy: in the loss, or in the reward before advantages.

With x = lp - lp_ref and tokens sampled from π, k1, k3 estimate KL(π‖π_ref) without bias; as a loss term only k2 (and k3
with the gradient of k2) has the gradient of the KL, while k1 differentiated through lp has mean zero (Schulman,
"Approximating KL divergence", 2020). Use one of the two places, never both.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rl_agents.losses.masks import masked

Estimator = Literal["k1", "abs", "k2", "k3", "k3+"]


def kl_penalty(logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor, kind: Estimator) -> Tensor:
    """k1 = x;  abs = |x|;  k2 = x²/2;  k3 = e^{-x} + x - 1;  k3+ = value of k3 with the gradient of k2.

    For k3 x is clamped to ±20 and the result to 10 (verl); beyond either bound it has no gradient. Multiply by β and
    aggregate exactly as the policy loss. β = 0 must skip the reference forward altogether.

    Args:
        logprobs: lp under the current policy [rows, tokens], carries the gradient.
        reference_logprobs: lp_ref [rows, tokens], a constant.
        mask: 1 on sampled tokens.

    Returns:
        [rows, tokens], nats, 0 on masked tokens.

    Raises:
        ValueError: unknown estimator.
    """
    return masked(_estimate(masked(logprobs - reference_logprobs.detach(), mask), kind), mask)


def _estimate(x: Tensor, kind: Estimator) -> Tensor:
    if kind == "k1":
        return x
    if kind == "abs":
        return x.abs()
    if kind == "k2":
        return 0.5 * x.square()
    if kind == "k3":
        bounded = x.clamp(-20.0, 20.0)
        return (torch.expm1(-bounded) + bounded).clamp(-10.0, 10.0)
    if kind == "k3+":
        slope = 0.5 * x.square()
        return _estimate(x.detach(), "k3") + slope - slope.detach()
    raise ValueError(f"unknown KL estimator '{kind}': valid: k1, abs, k2, k3, k3+")
