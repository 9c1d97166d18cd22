"""Masked and grouped statistics that the advantage estimators share. numpy float64 throughout.

Two conventions differ between published systems and are switches everywhere:

* what is counted: ``statistics="trajectories"`` counts a trajectory once however many step rows it has (paper form),
  ``"step_rows"`` counts every row, so that long trajectories weigh more (verl-agent default);
* a group of one: ``singleton="raw"`` keeps the reward as advantage (mean 0, std 1), ``"zero"`` gives 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Statistics = Literal["trajectories", "step_rows"]
Norm = Literal["mean_std", "mean"]
Singleton = Literal["raw", "zero"]


def masked_mean(x: ArrayLike, mask: ArrayLike) -> float:
    """mean_m(x) = Σ m·x / (Σ m + 1e-8); what lies outside the mask may be NaN. 0 for an empty mask."""
    flag = np.asarray(mask) != 0
    values = np.where(flag, np.asarray(x, dtype=np.float64), 0.0)
    return float(values.sum() / (flag.sum() + 1e-8))


def masked_var(x: ArrayLike, mask: ArrayLike, *, ddof: int = 1) -> float:
    """var_m(x) = mean_m((x - mean_m)²)·n/(n - ddof), n = Σ m.

    Raises:
        ValueError: n <= ddof, so that the variance is undefined.
    """
    flag = np.asarray(mask) != 0
    count = int(flag.sum())
    if count <= max(ddof, 0):
        raise ValueError(f"variance with ddof={ddof} needs more than {ddof} valid values, got {count}")
    values = np.asarray(x, dtype=np.float64)
    centred = np.where(flag, values, 0.0) - masked_mean(values, flag)
    return masked_mean(centred**2, flag) * count / (count - ddof)


def masked_whiten(
    x: ArrayLike,
    mask: ArrayLike,
    *,
    ddof: int = 1,
    epsilon: float = 1e-8,
    floor: Literal["add", "clamp", "add_to_std"] = "add",
) -> FloatArray:
    """whiten_m(x) = (x - mean_m)·(var_m + ε)^{-1/2} on the mask, 0 elsewhere.

    Args:
        x, mask: arrays of one shape; the mask is non-zero on what counts.
        ddof: 1 sample (verl), 0 population (NeMo-RL) variance.
        epsilon: ε.
        floor: ``add``: var + ε;  ``clamp``: max(var, ε) (NeMo-RL);  ``add_to_std``: std + ε (StepPO's step rows).

    Raises:
        ValueError: fewer than two valid values (with ddof=1).
    """
    flag = np.asarray(mask) != 0
    values = np.where(flag, np.asarray(x, dtype=np.float64), 0.0)
    variance = masked_var(values, flag, ddof=ddof)
    scale = np.sqrt(variance) + epsilon
    if floor != "add_to_std":
        scale = np.sqrt(max(variance, epsilon) if floor == "clamp" else variance + epsilon)
    whitened: FloatArray = np.where(flag, (values - masked_mean(values, flag)) / scale, 0.0)
    return whitened


class GroupStatistics(NamedTuple):
    """Per element, the statistics of the group that it belongs to."""

    mean: FloatArray
    std: FloatArray
    size: IntArray
    equal: BoolArray


def group_statistics(
    values: ArrayLike, groups: ArrayLike, *, ddof: int = 1, tolerance: float = 1e-6
) -> GroupStatistics:
    """Mean, standard deviation and size of the group of every element.

    Args:
        values: [n].
        groups: [n] integers; equal numbers form a group.
        ddof: 1 sample (verl, StepPO), 0 population (HGPO, PivotRL profiling, DAPO filter) deviation.
        tolerance: a group whose values differ by at most tolerance·max(1, max|value|) counts as ``equal``, so that
            floating-point noise in equal rewards is not blown up by a division by ε.

    Returns:
        Four [n] arrays; std is 0 in a group of one.
    """
    x, index = np.asarray(values, dtype=np.float64), _index(groups)
    size = np.bincount(index)
    mean = np.bincount(index, weights=x) / size
    squares = np.bincount(index, weights=(x - mean[index]) ** 2)
    std = np.sqrt(squares / np.maximum(size - ddof, 1))
    low, high = np.full(size.size, np.inf), np.full(size.size, -np.inf)
    np.minimum.at(low, index, x)
    np.maximum.at(high, index, x)
    equal = high - low <= tolerance * np.maximum(1.0, np.maximum(np.abs(high), np.abs(low)))
    return GroupStatistics(mean[index], std[index], size[index].astype(np.int64), equal[index])


def _index(groups: ArrayLike) -> IntArray:
    """Group labels as consecutive integers from 0."""
    inverse: IntArray = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(-1).astype(np.int64)
    return inverse


def group_normalise(
    values: ArrayLike,
    groups: ArrayLike,
    *,
    norm: Norm = "mean_std",
    ddof: int = 1,
    singleton: Singleton = "raw",
    epsilon: float = 1e-6,
    tolerance: float = 1e-6,
) -> FloatArray:
    """(x - μ_g)/(σ_g + ε), or x - μ_g with ``norm="mean"``: exactly 0 in a group of equal values.

    Args:
        values, groups: [n].
        norm: divide by the group's deviation or not.
        ddof, tolerance: see `group_statistics`.
        singleton: ``raw``: a group of one keeps its value;  ``zero``: it gets 0.
        epsilon: ε, added to the deviation and not under the root.

    Raises:
        ValueError: unknown norm or singleton convention.
    """
    if norm not in ("mean_std", "mean") or singleton not in ("raw", "zero"):
        raise ValueError(f"unknown norm '{norm}' or singleton convention '{singleton}'")
    x = np.asarray(values, dtype=np.float64)
    if x.size == 0:
        return x
    stats = group_statistics(x, groups, ddof=ddof, tolerance=tolerance)
    scale = stats.std + epsilon if norm == "mean_std" else np.ones_like(x)
    normalised = np.where(stats.equal, 0.0, (x - stats.mean) / scale)
    alone: FloatArray = np.where(stats.size == 1, x if singleton == "raw" else 0.0, normalised)
    return alone


class Units(NamedTuple):
    """What a statistic counts: ``first`` row of every unit, and the unit ``of_row`` (-1 for padding rows)."""

    first: IntArray
    of_row: IntArray


def counted_units(
    groups: ArrayLike,
    trajectories: ArrayLike | None = None,
    statistics: Statistics = "trajectories",
    valid: ArrayLike | None = None,
) -> Units:
    """Reduce rows to the units that a group statistic counts.

    Args:
        groups: [rows].
        trajectories: [rows], unique within a group; None when every row is a trajectory.
        statistics: ``trajectories`` or ``step_rows``.
        valid: [rows], 0 on padding rows.

    Raises:
        ValueError: unknown ``statistics``.
    """
    if statistics not in ("trajectories", "step_rows"):
        raise ValueError(f"unknown statistics '{statistics}': valid: trajectories, step_rows")
    group = np.asarray(groups, dtype=np.int64)
    keep = np.ones(group.size, dtype=bool) if valid is None else np.asarray(valid) != 0
    of_row = np.full(group.size, -1, dtype=np.int64)
    rows = np.flatnonzero(keep)
    if statistics == "step_rows" or trajectories is None:
        of_row[rows] = np.arange(rows.size)
        return Units(rows.astype(np.int64), of_row)
    keys = np.stack([group[rows], np.asarray(trajectories, dtype=np.int64)[rows]])
    _, first, inverse = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    of_row[rows] = inverse.reshape(-1)
    return Units(rows[first].astype(np.int64), of_row)


def spread_to_rows(per_unit: FloatArray, of_row: IntArray) -> FloatArray:
    """Give every row the value of its unit, padding rows 0."""
    padded = np.append(per_unit, 0.0)
    rows: FloatArray = padded[of_row]
    return rows


def trajectory_order(trajectories: ArrayLike, step_index: ArrayLike, valid: ArrayLike | None = None) -> list[IntArray]:
    """Row numbers of every trajectory in step order, padding rows left out.

    Args:
        trajectories: [rows], unique over the batch.
        step_index: [rows], 0..T-1 within a trajectory, in any row order.
        valid: [rows], 0 on padding rows.

    Raises:
        ValueError: the step indices of a trajectory are not exactly 0..T-1.
    """
    ids, steps = np.asarray(trajectories), np.asarray(step_index)
    keep = np.ones(ids.size, dtype=bool) if valid is None else np.asarray(valid) != 0
    rows = np.flatnonzero(keep)
    rows = rows[np.lexsort((steps[rows], ids[rows]))]
    starts = np.flatnonzero(np.r_[True, ids[rows][1:] != ids[rows][:-1]]) if rows.size else np.array([], dtype=int)
    parts = np.split(rows, starts[1:]) if rows.size else []
    for part in parts:
        if not np.array_equal(steps[part], np.arange(part.size)):
            found = steps[part].tolist()
            raise ValueError(f"trajectory {ids[part[0]]}: step indices {found} are not 0..{part.size - 1}")
    return [part.astype(np.int64) for part in parts]
