"""Losses per token, their aggregation over the batch, and corrections for samples of another policy.

Every loss returns [rows, tokens], 0 on masked tokens. `weighted_sum` adds it up with the weights of
`aggregation_weights`, which contain all denominators of the whole mini-batch: loss = Σ_{i,j} w_{i,j}·ℓ_{i,j}. Therefore
any split into micro-batches and any number of learners (which add their sums) give the same loss and gradient.
Advantages are constants, and sampled tokens have mask 1.

  PPO         max(-A·ρ, -A·clip(ρ))                 ρ per token, step (StepPO) or sequence (GSPO)
  CISPO       -sg(clip(ρ))·A·lp                     no token ever loses its gradient
  SFT         -lp

The loss is a sum of *components* (`COMPONENTS`), each with own weights of the tokens and an own denominator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rl_agents.config.sections import Estimator, LossAggMode

FloatArray = NDArray[np.float64]
#: A loss per token, and detached scalars: means over the sampled tokens.
Loss = tuple[Tensor, dict[str, Tensor]]
#: Components of the policy's loss: the algorithm's own objective, imitation of demonstrated tokens, and the KL
#: divergence from a teacher.
COMPONENTS = RL, CE, REF_KL = "rl", "ce", "ref_kl"

# --- sums over sampled tokens: other tokens count for nothing, regardless of their values -----------------------------


def masked(x: Tensor, mask: Tensor) -> Tensor:
    """Return ``x`` where ``mask`` is set and 0 elsewhere, safe against NaN and inf in value and in gradient."""
    return torch.where(mask > 0, x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Σ m·x / max(Σ m, 1): the mean over the sampled tokens, 0 when there is none."""
    return masked(x, mask).sum() / (mask > 0).sum().clamp(min=1)


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over the sampled tokens of every row, broadcast back to [rows, tokens]; an empty row gives 0."""
    count = (mask > 0).sum(-1, keepdim=True).clamp(min=1)
    return (masked(x, mask).sum(-1, keepdim=True) / count).expand_as(x)


def segment_sum(x: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """Sum over the sampled tokens of every (row, segment), broadcast back to its tokens; 0 on masked tokens.

    Args:
        x, mask: [rows, tokens].
        segments: [rows, tokens] int64, step index of every sampled token; negative elsewhere.

    Raises:
        ValueError: a sampled token belongs to no segment.
    """
    index, empty = _segments(x, mask, segments)
    return masked(empty.index_add(0, index, masked(x, mask).flatten())[index].view_as(x), mask)


def segment_mean(x: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
    """Mean over the sampled tokens of every (row, segment); arguments and errors are those of `segment_sum`."""
    index, empty = _segments(x, mask, segments)
    total = empty.index_add(0, index, masked(x, mask).flatten())
    count = empty.index_add(0, index, (mask > 0).to(x.dtype).flatten())
    return masked((total / count.clamp(min=1))[index].view_as(x), mask)


def _segments(x: Tensor, mask: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of every token's (row, segment), flat, and zeros to add up in, one per number."""
    if bool(((segments < 0) & (mask > 0)).any()):
        raise ValueError("segments: a token with mask 1 has a negative segment")
    start = segments.clamp(min=0)
    width = int(start.max()) + 1 if x.numel() else 0
    index = (start + width * torch.arange(x.shape[0], device=x.device).unsqueeze(1)).flatten()
    return index, torch.zeros(x.shape[0] * width, dtype=x.dtype, device=x.device)


# --- likelihood -------------------------------------------------------------------------------------------------------


def log_distribution(logits: Tensor, temperature: float) -> Tensor:
    """log p = log softmax(z / T) in float32, [..., vocabulary]; T > 0 is the sampling temperature of the rollouts."""
    return torch.log_softmax(at_least_float32(logits) / temperature, dim=-1)


def at_least_float32(tensor: Tensor) -> Tensor:
    """Return half precision as float32, and anything else unchanged."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def token_entropy(log_probs: Tensor) -> Tensor:
    """H = -Σ_v p_v·log p_v over the full vocabulary, in nats; [..., vocabulary] to [...]."""
    return -(log_probs.exp() * log_probs).sum(-1)


# --- policy -----------------------------------------------------------------------------------------------------------

Level = Literal["token", "step", "sequence"]


def log_ratio(
    logprobs: Tensor, old_logprobs: Tensor, mask: Tensor, *, level: Level = "token", segments: Tensor | None = None
) -> Tensor:
    """log ρ per token: d = lp - lp_old, averaged over the step or the row, then clamped to ±20 against overflow.

    The means make ρ the geometric mean of the token ratios, which does not grow with length.

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


def ppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    level: Level = "token",
    segments: Tensor | None = None,
    dual_clip: float = 0.0,
) -> Loss:
    """ℓ = max(-A·ρ, -A·clip(ρ, 1-ε_lo, 1+ε_hi)) on ρ = exp(lp - lp_old) at the chosen level.

    With a negative A the loss and its gradient grow with ρ: a ratio of e^10 counts 22026 times. Dual clip bounds it, ℓ
    <- min(ℓ, -A·c) where A < 0, without gradient beyond c (Ye et al. 2020, arXiv 1912.09729, eq. 5).

    ``token`` is PPO (Schulman et al. 2017, eq. 7), ``step`` is StepPO (eq. 7-8), ``sequence`` is GSPO (Zheng et al.
    2025, eq. 5-7); DAPO's clip-higher is ε_hi > ε_lo. With a step or sequence ratio the loss is the same for all tokens
    of the step, so that weights 1/L per token (``step-mean``, ``step-mean-in-traj``, ``seq-mean-token-mean``) give the
    mean over steps or rows.

    Args:
        logprobs: lp under the current policy [rows, tokens], carries the gradient.
        old_logprobs: lp_old under the policy at the start of the batch.
        advantages: A per token; with ``step`` and ``sequence`` constant within the unit.
        mask: 1 on sampled tokens.
        clip_low, clip_high: ε_lo and ε_hi, distances from 1; geometric means move little, hence about 4e-4 for them.
        level, segments: see `log_ratio`.
        dual_clip: c > 1; 0: off.

    Returns:
        Loss per token; metrics ``clip_fraction``, ``ppo_kl`` and ``ratio_mean``.
    """
    log_rho = log_ratio(logprobs, old_logprobs, mask, level=level, segments=segments)
    ratio, advantages = log_rho.exp(), masked(advantages, mask).detach()
    plain = -advantages * ratio
    clipped = -advantages * ratio.clamp(1.0 - clip_low, 1.0 + clip_high)
    metrics = {"clip_fraction": masked_mean((clipped > plain).to(ratio.dtype), mask).detach()}
    loss = torch.maximum(plain, clipped)
    if dual_clip:
        loss = torch.where(advantages < 0, torch.minimum(loss, -advantages * dual_clip), loss)
    return masked(loss, mask), metrics | _drift(log_rho, logprobs, old_logprobs, mask)


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


def _drift(log_rho: Tensor, logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """``ppo_kl`` = mean(lp_old - lp) and the mean ratio: how far the policy has moved since it sampled."""
    with torch.no_grad():
        return {
            "ppo_kl": masked_mean(old_logprobs - logprobs, mask),
            "ratio_mean": masked_mean(log_rho.exp(), mask),
        }


def cross_entropy(logprobs: Tensor, mask: Tensor) -> Tensor:
    """ℓ_j = -lp_j: REINFORCE with advantage 1 on demonstrated instead of sampled tokens."""
    return masked(-logprobs, mask)


# --- Kullback-Leibler penalty -----------------------------------------------------------------------------------------


def kl_penalty(logprobs: Tensor, reference_logprobs: Tensor, mask: Tensor, kind: Estimator) -> Tensor:
    """k1 = x;  abs = |x|;  k2 = x²/2;  k3 = e^{-x} + x - 1;  k3+ = value of k3 with the gradient of k2.

    With x = lp - lp_ref and tokens sampled from π, k1 and k3 estimate KL(π‖π_ref) without bias. As a loss term only k2
    (and k3+) has the gradient of the KL, while k1 differentiated through lp has mean zero (Schulman, "Approximating KL
    divergence", 2020). Penalize in the loss or in the reward, never in both.

    The value of k3 is at most 10, as in verl. Its gradient is not clamped with it but stays 1 - e^{-x}, x within ±20:
    a token far below the reference, x < -2.6, is the one to pull back. Multiply by β and aggregate exactly as the
    policy loss. β = 0 must skip the reference forward altogether.

    Args:
        logprobs: lp under the current policy [rows, tokens], carries the gradient.
        reference_logprobs: lp_ref [rows, tokens], a constant.
        mask: 1 on sampled tokens.

    Returns:
        [rows, tokens], nats, 0 on masked tokens.

    Raises:
        ValueError: unknown estimator.
    """
    return masked(_kl_estimate(masked(logprobs - reference_logprobs.detach(), mask), kind), mask)


def full_kl(log_probs: Tensor, teacher_log_probs: Tensor) -> Tensor:
    """KL(π‖π_T) = Σ_v p_v·(log p_v - log q_v) over the whole vocabulary, in nats; [..., vocabulary] to [...]."""
    return (log_probs.exp() * (log_probs - teacher_log_probs.detach())).sum(-1)


def _kl_estimate(x: Tensor, kind: Estimator) -> Tensor:
    if kind == "k1":
        return x
    if kind == "abs":
        return x.abs()
    if kind == "k2":
        return 0.5 * x.square()
    if kind == "k3":
        bounded = x.detach().clamp(-20.0, 20.0)
        slope = -torch.expm1(-bounded)
        return (bounded - slope).clamp(max=10.0) + slope * (x - x.detach())
    if kind == "k3+":
        slope = 0.5 * x.square()
        return _kl_estimate(x.detach(), "k3") + slope - slope.detach()
    raise ValueError(f"unknown KL estimator '{kind}': valid: {', '.join(get_args(Estimator))}")


# --- critic -----------------------------------------------------------------------------------------------------------


def clipped_value_loss(
    values: Tensor, old_values: Tensor, returns: Tensor, mask: Tensor, *, clip: float | None
) -> Loss:
    """ℓ_j = ½·max((V - G)², (clip(V, V_old - c, V_old + c) - G)²): the larger error, as in PPO's clipped loss.

    Token PPO sets the mask on all sampled tokens; StepPO on one position per step, the last prompt token.

    Args:
        values: V under the current critic [rows, tokens], carries the gradient.
        old_values: V_old at the start of the batch.
        returns: G = A + V_old with A before whitening.
        mask: 1 where the critic is trained.
        clip: c in units of return (verl default 0.5); None for the plain squared error.

    Returns:
        Loss per token; metrics ``value_clip_fraction``, ``value_mean`` and ``value_error``, the mean of V - G.
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


# --- aggregation ------------------------------------------------------------------------------------------------------


def aggregation_weights(
    masks: Sequence[ArrayLike],
    mode: LossAggMode,
    *,
    trajectories: ArrayLike = (),
    segments: Sequence[ArrayLike] = (),
    constant_length: float | None = None,
) -> list[FloatArray]:
    """Weight of every token of the whole mini-batch.

    ==========================  =====================================================================
    ``token-mean``              Σ m·ℓ / Σ m
    ``seq-mean-token-sum``      mean over rows of Σ_j m·ℓ
    ``seq-mean-token-mean``     mean over rows of (Σ_j m·ℓ) / (Σ_j m)              (GSPO)
    ``traj-mean-token-mean``    mean over trajectories of (Σ_rows Σ_j m·ℓ) / (Σ_rows Σ_j m)   (GRPO, VSPO, T3: 1/|y|)
    ``seq-mean-token-sum-norm`` Σ_i Σ_j m·ℓ / (L_const · rows)        (Dr.GRPO)
    ``step-mean``               mean over steps of (Σ_j m·ℓ) / (Σ_j m)             (StepPO code, its row mean)
    ``step-mean-in-traj``       mean over trajectories of the mean over their steps of the same (StepPO eq. 8)
    ==========================  =====================================================================

    A paper's 1/|y| is over the trajectory y: with ``traj-mean-token-mean`` each weighs the same, into however many rows
    it is split; ``seq-mean-token-mean`` is that only where each is one row. The modes with a token sum weigh all tokens
    alike, and only their common factor depends on the number of rows.

    Rows, steps and trajectories without a sampled token do not count. Pass the masks that remain after rejection
    (masked importance sampling, overlong filtering) so that the denominators shrink with them.

    Args:
        masks: one 1-D array per row, non-zero on sampled tokens.
        mode: see the table; ``step-mean`` with one step per row is ``seq-mean-token-mean``.
        trajectories: trajectory id of every row, for the trajectory modes.
        segments: step index of every token per row (negative elsewhere), for the step modes. A step never crosses
            rows.
        constant_length: L_const in tokens; None: the longest row.

    Returns:
        One float64 array per row, 0 on masked tokens.

    Raises:
        ValueError: unknown mode, arrays of different lengths, a sampled token without a step.
    """
    if mode not in get_args(LossAggMode):
        raise ValueError(f"unknown aggregation '{mode}': valid: {', '.join(get_args(LossAggMode))}")
    flags = [np.asarray(mask) != 0 for mask in masks]
    if mode.startswith("step-mean"):
        units = np.asarray(trajectories).tolist() if mode == "step-mean-in-traj" else [0] * len(flags)
        return _step_weights(flags, units, [np.asarray(segment, dtype=np.int64) for segment in segments])
    counts = np.array([int(flag.sum()) for flag in flags], dtype=np.float64)
    rows = max(int((counts > 0).sum()), 1)
    if mode == "token-mean":
        per_row = np.full(len(flags), 1.0 / max(counts.sum(), 1.0))
    elif mode == "seq-mean-token-sum":
        per_row = np.full(len(flags), 1.0 / rows)
    elif mode == "seq-mean-token-mean":
        per_row = 1.0 / (rows * np.maximum(counts, 1.0))
    elif mode == "traj-mean-token-mean":
        owner = np.unique(np.asarray(trajectories), return_inverse=True)[1]
        tokens = np.bincount(owner, weights=counts)
        per_row = 1.0 / (max(int((tokens > 0).sum()), 1) * np.maximum(tokens, 1.0))[owner]
    else:
        length = constant_length if constant_length is not None else max((flag.size for flag in flags), default=1)
        per_row = np.full(len(flags), 1.0 / (length * rows))
    return [flag * weight for flag, weight in zip(flags, per_row, strict=True)]


def linear_decay(start: float, share: float, done: float) -> float:
    """c·max(0, 1 - d/s): c falls linearly to 0 while the completed share d of a run grows to s; s = 0: constant."""
    return start * max(0.0, 1.0 - done / share) if share else start


def _step_weights(flags: list[NDArray[np.bool_]], units: list[int], steps: list[NDArray[np.int64]]) -> list[FloatArray]:
    """1/(units · steps in the unit · tokens in the step); the unit is a trajectory, or the whole batch."""
    if any(bool((s[f] < 0).any()) for s, f in zip(steps, flags, strict=True)):
        raise ValueError("segments: a token with mask 1 has a negative segment")
    steps_in_unit: dict[int, int] = {}
    for unit, flag, step in zip(units, flags, steps, strict=True):
        steps_in_unit[unit] = steps_in_unit.get(unit, 0) + np.unique(step[flag]).size
    filled = max(sum(count > 0 for count in steps_in_unit.values()), 1)
    weights = []
    for unit, flag, step in zip(units, flags, steps, strict=True):
        weight = np.zeros(flag.size)
        _, inverse, tokens = np.unique(step[flag], return_inverse=True, return_counts=True)
        weight[flag] = 1.0 / (filled * steps_in_unit[unit] * tokens[inverse])
        weights.append(weight)
    return weights


def weighted_sum(loss: Tensor, weights: Tensor) -> Tensor:
    """Σ w·ℓ over all tokens of a micro-batch; positions of weight 0 are excluded, regardless of their values.

    Args:
        loss: [rows, tokens].
        weights: [rows, tokens], from `aggregation_weights`, padded with 0.
    """
    return masked(loss * weights.to(loss.dtype), weights != 0).sum()


# --- correction for the mismatch between the engine that sampled (π_roll) and the policy at batch start (π_old) -------
#
# Three policies: π_roll, π_old, π_θ. With d_j = lp_old_j - lp_roll_j and r = e^d, every function returns a
# `Correction`: weights that multiply the policy loss per token *after* clipping (not the KL, not the entropy), and the
# remaining mask. Compute the aggregation weights from that mask, so that denominators shrink with rejected tokens.
#
# Truncated importance sampling (TIS) clips r; masked importance sampling (MIS) and rejection (RS) drop outliers. A
# weight belongs to a token, to the tokens of one interaction step (`step_tis`), or to a whole row. All bounds are on r
# itself. In bypass mode (lp_old := lp_roll) the PPO ratio already contains the correction: use none. Tokens that the
# engine did not sample (forced by a chat template) have no lp_roll and must have mask 0.

Bounds = tuple[float, float]
#: What a correction has one weight for.
Unit = Literal["token", "step", "row"]


class Correction(NamedTuple):
    """``weights`` [rows, tokens], detached, 0 outside ``mask``; ``mask`` [rows, tokens] of 0 and 1: kept tokens."""

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

    The exact weight of an action given its state, for ratios per step (StepPO) and comparisons of siblings at one state
    (3SPO). A row of one step has the weight of `sequence_tis`, steps of one token those of `token_tis`.

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
    """w = min(exp(clamp(Σ_j d_j, ±20)), C) for all tokens of the row: the exact sequence weight, with C of 2 to 10."""
    return _correction(_row_product(_difference(old_logprobs, rollout_logprobs, mask)).clamp(max=cap), mask)


def sequence_mis(
    old_logprobs: Tensor,
    rollout_logprobs: Tensor,
    mask: Tensor,
    *,
    cap: float = 2.0,
    bounds: Bounds = (0.5, 2.0),
) -> Correction:
    """Sequence TIS that also rejects rows whose product Π r is outside ``bounds`` (verl "Seq-MIS")."""
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


def icepop(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor, *, bounds: Bounds = (0.5, 5.0)) -> Correction:
    """w_j = r_j within ``bounds``, else 0 (NeMo-RL "IcePop"): token TIS that drops instead of clipping.

    The weight is zeroed but the token stays in the mask, so that denominators do not change.
    """
    ratio = _difference(old_logprobs, rollout_logprobs, mask).clamp(-20.0, 20.0).exp()
    return _correction(torch.where(_inside(ratio, bounds), ratio, torch.zeros_like(ratio)), mask)


class CorrectionMethod(NamedTuple):
    """A function, the names of its options, and what it has one weight for.

    `geometric_rejection` weighs tokens, although it rejects rows.
    """

    correct: Callable[..., Correction]
    options: tuple[str, ...]
    unit: Unit = "token"


#: Value of the key ``rollout_correction`` -> method.
CORRECTIONS = {
    "token_tis": CorrectionMethod(token_tis, ("cap",)),
    "step_tis": CorrectionMethod(step_tis, ("cap", "segments"), "step"),
    "sequence_tis": CorrectionMethod(sequence_tis, ("cap",), "row"),
    "seq_mis": CorrectionMethod(sequence_mis, ("cap", "bounds"), "row"),
    "geo_rs": CorrectionMethod(geometric_rejection, ("bounds",)),
    "icepop": CorrectionMethod(icepop, ("bounds",)),
}


def effective_share(log_ratios: FloatArray) -> float:
    """Effective sample size divided by n, (Σ r)²/(n·Σ r²), of the unclipped ratios r = e^d (Kong 1992).

    1 if all n samples have the same weight; near 0 if a few dominate, because the policy is far from the one that
    sampled.

    Args:
        log_ratios: d, [samples]: of tokens, or sums over steps or rows if those have one weight.
    """
    if not log_ratios.size:
        return 1.0
    ratios = np.exp(log_ratios - log_ratios.max())
    return float(ratios.sum() ** 2 / (ratios.size * (ratios**2).sum()))


def mismatch_metrics(old_logprobs: Tensor, rollout_logprobs: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Mismatch of engine and learner: k1 and k3 estimates of KL(π_roll‖π_old), mean and largest |d|."""
    difference = _difference(old_logprobs, rollout_logprobs, mask)
    size = difference.abs()
    return {
        "mismatch_kl": masked_mean(-difference, mask),
        "mismatch_k3": masked_mean(torch.expm1(difference.clamp(-20.0, 20.0)) - difference, mask),
        "mismatch_mean": masked_mean(size, mask),
        "mismatch_max": size.max() if size.numel() else size.sum(),
    }
