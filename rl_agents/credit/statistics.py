"""Masked statistics, whitening and the order of steps, as the advantage estimators share them. numpy float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def masked_mean(x: ArrayLike, mask: ArrayLike) -> float:
    """mean_m(x) = Σ m·x / (Σ m + 1e-8); what lies outside the mask may be NaN. 0 for an empty mask."""
    flag = np.asarray(mask) != 0
    values = np.where(flag, np.asarray(x, dtype=np.float64), 0.0)
    return float(values.sum() / (flag.sum() + 1e-8))


def masked_var(x: ArrayLike, mask: ArrayLike) -> float:
    """var_m(x) = mean_m((x - mean_m)²)·n/(n - 1), n = Σ m.

    Raises:
        ValueError: n < 2, where the variance is undefined.
    """
    flag = np.asarray(mask) != 0
    count = int(flag.sum())
    if count < 2:
        raise ValueError(f"the sample variance needs at least 2 valid values, got {count}")
    values = np.asarray(x, dtype=np.float64)
    centred = np.where(flag, values, 0.0) - masked_mean(values, flag)
    return masked_mean(centred**2, flag) * count / (count - 1)


def masked_whiten(x: ArrayLike, mask: ArrayLike) -> FloatArray:
    """whiten_m(x) = (x - mean_m)·(var_m + 1e-8)^{-1/2} on the mask, 0 elsewhere.

    Raises:
        ValueError: fewer than two values on the mask.
    """
    flag = np.asarray(mask) != 0
    values = np.where(flag, np.asarray(x, dtype=np.float64), 0.0)
    scale = np.sqrt(masked_var(values, flag) + 1e-8)
    whitened: FloatArray = np.where(flag, (values - masked_mean(values, flag)) / scale, 0.0)
    return whitened


def whiten_rows(rows: Sequence[FloatArray], masks: Sequence[ArrayLike]) -> list[FloatArray]:
    """Whiten over all sampled tokens of the batch, so that long rows dominate mean and deviation; 0 where masked.

    Args:
        rows, masks: one [tokens] array per row.

    Raises:
        ValueError: fewer than two sampled tokens in the batch.
    """
    flat = masked_whiten(np.concatenate(rows), np.concatenate([np.asarray(mask) for mask in masks]))
    return list(np.split(flat, np.cumsum([row.size for row in rows])[:-1]))


def whiten_by_length(advantages: ArrayLike, lengths: ArrayLike) -> FloatArray:
    """`whiten_rows` for steps whose tokens all share one advantage.

    Args:
        advantages, lengths: [steps]; sampled tokens of every step, at least one.

    Raises:
        ValueError: fewer than two tokens in the batch.
    """
    counts = np.asarray(lengths, dtype=np.int64)
    tokens = np.repeat(np.asarray(advantages, dtype=np.float64), counts)
    of_steps: FloatArray = masked_whiten(tokens, np.ones(tokens.size))[np.cumsum(counts) - counts]
    return of_steps


def trajectory_order(trajectories: ArrayLike, step_index: ArrayLike) -> list[IntArray]:
    """Row numbers of every trajectory in step order.

    Args:
        trajectories: [rows], unique over the batch.
        step_index: [rows], 0..T-1 within a trajectory, in any row order.

    Raises:
        ValueError: the step indices of a trajectory are not exactly 0..T-1.
    """
    ids, steps = np.asarray(trajectories), np.asarray(step_index)
    if not ids.size:
        return []
    rows = np.lexsort((steps, ids))
    parts = np.split(rows, np.flatnonzero(ids[rows][1:] != ids[rows][:-1]) + 1)
    for part in parts:
        if not np.array_equal(steps[part], np.arange(part.size)):
            found = steps[part].tolist()
            raise ValueError(f"trajectory {ids[part[0]]}: step indices {found} are not 0..{part.size - 1}")
    return [part.astype(np.int64) for part in parts]
