"""Selection of an iteration's task groups: DAPO's dynamic sampling, and the result of every selection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_agents.advantages import group_statistics
from rl_agents.errors import EpisodesFail


def informative_groups(returns: ArrayLike, groups: ArrayLike) -> NDArray[np.bool_]:
    """Mask of rows of groups whose returns differ (`rl_agents.advantages.tolerance`; DAPO, Yu et al. 2025, eq. 11).

    A group of one has no advantage, and is dropped. Unlike VSPO, which refills the batch from itself, the caller
    generates more tasks until enough are kept.

    Args:
        returns: [rows], of the whole batch.
        groups: [rows], task instance; groups stay whole.

    Returns:
        [rows] bool.
    """
    return ~group_statistics(np.asarray(returns, dtype=np.float64), groups).equal


def first_groups(groups: ArrayLike, keep: ArrayLike, count: int) -> NDArray[np.bool_]:
    """Keep the first ``count`` kept groups in row order; groups stay whole.

    Args:
        groups: [rows].
        keep: [rows] bool, from `informative_groups`.
        count: number of tasks to train on.

    Raises:
        ValueError: fewer groups are kept; generate again.
    """
    labels, kept = np.asarray(groups), np.asarray(keep, dtype=bool)
    order = list(dict.fromkeys(labels[kept].tolist()))
    if len(order) < count:
        raise ValueError(f"{len(order)} informative groups, {count} wanted")
    chosen: NDArray[np.bool_] = kept & np.isin(labels, order[:count])
    return chosen


@dataclass(frozen=True, slots=True)
class Selected:
    """Choice of an algorithm's ``select`` among the episodes so far.

    Attributes:
        keep: [trajectories] bool, true for those to train on; groups stay whole.
        missing: number of task groups that are still needed.
        weights: factor on the advantages by group id; 1 if absent.
        metrics: numbers for the log.
    """

    keep: NDArray[np.bool_]
    missing: int = 0
    weights: Mapping[int, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


class SelectionError(EpisodesFail):
    """An iteration did not find enough tasks to train on."""
