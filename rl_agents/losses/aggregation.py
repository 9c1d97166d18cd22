"""From a loss per token to one number, by weights that are fixed before the batch is split.

loss = Σ_{i,j} w_{i,j}·ℓ_{i,j}. The weights hold every denominator of the whole mini-batch, so any micro-batch split,
any gradient accumulation and any sharding over learners (which add their sums) give the same loss and gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Mode = Literal[
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "step-mean",
    "step-mean-in-traj",
]
FloatArray = NDArray[np.float64]


def aggregation_weights(
    masks: Sequence[ArrayLike],
    mode: Mode,
    *,
    trajectories: ArrayLike,
    segments: Sequence[ArrayLike],
    constant_length: float | None,
) -> list[FloatArray]:
    """Weight of every token of the whole mini-batch.

    ==========================  =====================================================================
    ``token-mean``              Σ m·ℓ / Σ m
    ``seq-mean-token-sum``      mean over rows of Σ_j m·ℓ
    ``seq-mean-token-mean``     mean over rows of (Σ_j m·ℓ) / (Σ_j m)              (GRPO, GSPO)
    ``seq-mean-token-sum-norm`` Σ_i Σ_j m·ℓ / (L_const · rows)        (Dr.GRPO)
    ``step-mean``               mean over steps of (Σ_j m·ℓ) / (Σ_j m)             (StepPO code, its row mean)
    ``step-mean-in-traj``       mean over trajectories of the mean over their steps of the same (StepPO eq. 8)
    ==========================  =====================================================================

    Rows, steps and trajectories without a sampled token count nowhere. Pass the masks that remain after rejection
    (masked importance sampling, overlong filtering) so that the denominators shrink with them.

    Args:
        masks: one 1-D array per row, non-zero on sampled tokens.
        mode: see the table; ``step-mean`` with one step per row is ``seq-mean-token-mean``.
        trajectories: trajectory id of every row, for ``step-mean-in-traj``.
        segments: step index of every token per row (negative elsewhere), for the step modes. A step never crosses
            rows.
        constant_length: L_const in tokens; None: the longest row.

    Returns:
        One float64 array per row, 0 on masked tokens.

    Raises:
        ValueError: unknown mode, arrays of different lengths, a sampled token without a step.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"unknown aggregation '{mode}': valid: {', '.join(get_args(Mode))}")
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
    else:
        length = constant_length if constant_length is not None else max((flag.size for flag in flags), default=1)
        per_row = np.full(len(flags), 1.0 / (length * rows))
    return [flag * weight for flag, weight in zip(flags, per_row, strict=True)]


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
    """Σ w·ℓ over all tokens of a micro-batch; positions of weight 0 are dropped, regardless of their values.

    Args:
        loss: [rows, tokens].
        weights: [rows, tokens], from `aggregation_weights`, padded with 0.
    """
    zero = torch.zeros((), dtype=loss.dtype, device=loss.device)
    return torch.where(weights != 0, loss * weights.to(loss.dtype), zero).sum()
