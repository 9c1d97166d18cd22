"""Masked statistics, whitening and the way back over steps, as the advantage estimators share them. numpy float64."""

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
    centered = np.where(flag, values, 0.0) - masked_mean(values, flag)
    return masked_mean(centered**2, flag) * count / (count - 1)


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


def backward(following: ArrayLike) -> list[int]:
    """Number the entries so that each comes after the one that follows it.

    Args:
        following: [entries], the entry that follows each one, negative where none does; chains, or trees whose
            branches run together.

    Raises:
        ValueError: an entry follows itself.
    """
    links = np.asarray(following, dtype=np.int64)
    depth, ahead = np.zeros(links.size, dtype=np.int64), links
    while (open_ways := ahead >= 0).any():
        depth += open_ways
        if depth.max() > links.size:
            raise ValueError("entries follow each other in a circle")
        ahead = np.where(open_ways, links[ahead], -1)
    order: list[int] = np.argsort(depth, kind="stable").tolist()
    return order
