"""Which profiled turns are trained on: pivots (PivotRL, equation 5), or as many at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rl_agents.errors import InputError
from rl_agents.traces.store import read_table

if TYPE_CHECKING:
    import pyarrow

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Rule:
    """What makes a pivot.

    Attributes:
        max_mean: λ_diff (μ̂ < λ_diff); the paper does not publish it.
        min_variance: σ̂² above it counts as above 0.
        at_most: keep the hardest so many (lowest μ̂); 0 keeps all.
    """

    max_mean: float = 0.6
    min_variance: float = 1e-9
    at_most: int = 0


def choose_pivots(mean: Floats, variance: Floats, names: Sequence[str], rule: Rule) -> NDArray[np.bool_]:
    """Return which turns are pivots, [turns] bool. Ties at the border of ``at_most`` are broken by name.

    Args:
        mean, variance: μ̂ and population σ̂² of every turn.
        names: of the turns.
    """
    keep: NDArray[np.bool_] = (variance > rule.min_variance) & (mean < rule.max_mean)
    if rule.at_most and keep.sum() > rule.at_most:
        order = sorted(np.flatnonzero(keep), key=lambda i: (mean[i], names[i]))
        keep = np.zeros_like(keep)
        keep[order[: rule.at_most]] = True
    return keep


def choose_at_random(turns: int, count: int, seed: int) -> NDArray[np.bool_]:
    """Return ``count`` turns drawn without regard to their profiles (the paper's random pivots), [turns] bool."""
    keep = np.zeros(turns, dtype=bool)
    keep[np.random.default_rng(seed).permutation(turns)[:count]] = True
    return keep


def read_profile(path: Path) -> tuple[pyarrow.Table, Floats, Floats]:
    """Read a profile: its table, μ̂ and σ̂² of its turns.

    Raises:
        InputError: no such file, or turns without a profile.
    """
    table = read_table(path)
    if "mean" not in table.column_names:
        raise InputError(f"{path}: turns without a profile; run `run.py pivot profile` first")
    return table, table.column("mean").to_numpy(), table.column("variance").to_numpy()
