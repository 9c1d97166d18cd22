"""Correction for the mismatch between the engine that sampled (π_roll) and the trainer's policy at batch start (π_old).

Three policies: π_roll, π_old, π_θ. With d_j = lp_old_j - lp_roll_j and r = e^d, every function returns a `Correction`:
weights that multiply the policy loss per token *after* clipping (not the KL, not the entropy), and the mask that is
left. Compute the aggregation weights from that mask, so that denominators shrink with rejected tokens.

Truncated importance sampling (TIS) clips r, masked importance sampling (MIS) and rejection (RS) drop what is too far.
A weight belongs to a token, to the tokens of one interaction step (``step_tis``), or to a whole row. All bounds are on
r itself. In bypass mode (lp_old := lp_roll) the PPO ratio already holds the correction: use none.
Tokens that the engine did not sample (forced by a chat template) have no lp_roll and must have mask 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_agents.losses.masks import masked, masked_mean, row_mean, segment_sum

Bounds = tuple[float, float]
#: What a correction has one weight for.
Unit = Literal["token", "step", "row"]
#: Corrections of other units than tokens. `geometric_rejection` and the like weigh tokens, whatever they reject.
UNITS: dict[str, Unit] = {"step_tis": "step", "sequence_tis": "row", "seq_mis": "row"}


class Correction(NamedTuple):
    """``weights`` [rows, tokens], detached, 0 outside ``mask``; ``mask`` [rows, tokens] of 0 and 1, what is kept."""

    weights: Tensor
    mask: Tensor


def _difference(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor) -> Tensor:
    """d = lp_old - lp_roll, detached, 0 on masked tokens."""
    return masked((old_logprobs - rollout_logprobs).detach(), mask)


def _row_product(difference: Tensor) -> Tensor:
    """Π r over a row as exp(clamp(Σ d, ±20)), broadcast to its tokens."""
    total = difference.double().sum(-1, keepdim=True).clamp(-20.0, 20.0).exp()
    return total.to(difference.dtype).expand_as(difference)


def _correction(weights: Tensor, mask: Tensor, keep: Tensor | None = None) -> Correction:
    """Zero the weights outside mask and ``keep``; a rejected token leaves the mask as well."""
    kept = mask > 0 if keep is None else (mask > 0) & keep
    return Correction(masked(weights, kept), kept.to(weights.dtype))


def _inside(x: Tensor, bounds: Bounds) -> Tensor:
    return (x >= bounds[0]) & (x <= bounds[1])


def token_tis(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, cap: float = 2.0) -> Correction:
    """w_j = min(exp(clamp(d_j, ±20)), C) (Yao et al. 2025): biased by the cap, low variance.

    Args:
        old_logprobs, rollout_logprobs, mask: [rows, tokens].
        cap: C (verl 2.0; Nemotron recipes 5.0); no lower bound.
    """
    ratio = _difference(old_logprobs, rollout_logprobs, mask).clamp(-20.0, 20.0).exp()
    return _correction(ratio.clamp(max=cap), mask)


def step_tis(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, segments: Tensor, *, cap: float = 2.0
) -> Correction:
    """w_t = min(exp(clamp(Σ_{j in step t} d_j, ±20)), C) for all tokens of an interaction step.

    The exact weight of an action given its state: what a ratio per step (StepPO) or a comparison of siblings at one
    state (3SPO) is about. A row of one step has the weight of `sequence_tis`, steps of one token those of `token_tis`.

    Args:
        segments: [rows, tokens] int64, step index of every sampled token; negative elsewhere.
        cap: C.

    Raises:
        ValueError: a sampled token belongs to no step.
    """
    difference = _difference(old_logprobs, rollout_logprobs, mask)
    total = segment_sum(difference.double(), mask, segments).clamp(-20.0, 20.0).exp()
    return _correction(total.to(difference.dtype).clamp(max=cap), mask)


def sequence_tis(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, cap: float = 2.0) -> Correction:
    """w = min(exp(clamp(Σ_j d_j, ±20)), C) for all tokens of the row: token TIS with the exact sequence weight.

    Args:
        cap: C, typically 2-10.
    """
    return _correction(_row_product(_difference(old_logprobs, rollout_logprobs, mask)).clamp(max=cap), mask)


def sequence_mis(
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    bounds: Bounds = (0.5, 2.0),
) -> Correction:
    """Sequence TIS, and rows whose product Π r lies outside ``bounds`` are rejected (verl "Seq-MIS")."""
    product = _row_product(_difference(old_logprobs, rollout_logprobs, mask))
    return _correction(product.clamp(max=cap), mask, _inside(product, bounds))


def geometric_rejection(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, bounds: Bounds = (0.999, 1.001)
) -> Correction:
    """Reject rows whose geometric mean exp(mean_j d_j) is outside ``bounds``; weight 1 for the rest (verl "Geo-RS").

    Unlike Seq-MIS the test does not depend on the length of the row.
    """
    difference = _difference(old_logprobs, rollout_logprobs, mask)
    geometric = row_mean(difference, mask).clamp(-20.0, 20.0).exp()
    return _correction(torch.ones_like(difference), mask, _inside(geometric, bounds))


def k3_rejection(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, threshold: float = 0.01
) -> Correction:
    """Reject rows with mean_j(r_j - 1 - d_j) > threshold; weight 1 for the rest (verl "k3-RS").

    Differences of both signs add up here, whereas they cancel in `geometric_rejection`.
    """
    difference = _difference(old_logprobs, rollout_logprobs, mask).clamp(-20.0, 20.0)
    divergence = row_mean(torch.expm1(difference) - difference, mask)
    return _correction(torch.ones_like(difference), mask, divergence <= threshold)


def icepop(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, bounds: Bounds = (0.5, 5.0)) -> Correction:
    """w_j = r_j if it lies within ``bounds``, else 0 (NeMo-RL "IcePop"): token TIS that drops instead of clipping.

    The weight is zeroed but the token stays in the mask, so that denominators do not change.
    """
    ratio = _difference(old_logprobs, rollout_logprobs, mask).clamp(-20.0, 20.0).exp()
    weights = torch.where(_inside(ratio, bounds), ratio, torch.zeros_like(ratio))
    return _correction(weights, mask)


def sequence_mask_tis(
    old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, bounds: Bounds = (0.999, 1.002)
) -> Correction:
    """Rows with a geometric mean outside ``bounds`` are dropped, kept tokens use their raw r_j (NeMo-RL)."""
    difference = _difference(old_logprobs, rollout_logprobs, mask)
    geometric = row_mean(difference, mask).clamp(-20.0, 20.0).exp()
    return _correction(difference.clamp(-20.0, 20.0).exp(), mask, _inside(geometric, bounds))


#: Value of the key ``rollout_correction`` -> function.
METHODS: dict[str, Callable[..., Correction]] = {
    "token_tis": token_tis,
    "step_tis": step_tis,
    "sequence_tis": sequence_tis,
    "seq_mis": sequence_mis,
    "geo_rs": geometric_rejection,
    "k3_rs": k3_rejection,
    "icepop": icepop,
    "seq_mask_tis": sequence_mask_tis,
}


def effective_share(log_ratios: NDArray[np.float64]) -> float:
    """Effective sample size over samples, (Σ r)²/(n·Σ r²), of the uncut ratios r = e^d (Kong 1992).

    1 where all weigh alike; near 0 where a few of n samples carry the whole estimate: the policy is too far from the
    one that sampled.

    Args:
        log_ratios: d, [samples]: of tokens, or the sums over steps or rows where those have one weight.
    """
    if not log_ratios.size:
        return 1.0
    ratios = np.exp(log_ratios - log_ratios.max())
    return float(ratios.sum() ** 2 / (ratios.size * (ratios**2).sum()))


def mismatch_metrics(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """How far engine and trainer disagree: k1 and k3 estimates of KL(π_roll‖π_old), mean and largest |d|."""
    difference = _difference(old_logprobs, rollout_logprobs, mask)
    size = difference.abs()
    return {
        "mismatch_kl": masked_mean(-difference, mask),
        "mismatch_k3": masked_mean(torch.expm1(difference.clamp(-20.0, 20.0)) - difference, mask),
        "mismatch_mean": masked_mean(size, mask),
        "mismatch_max": size.max() if size.numel() else size.sum(),
    }
