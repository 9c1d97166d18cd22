"""The world of long steps and its credit measurements."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.credit_reach import doors, true_advantages
from benchmarks.long_thoughts import ROOMS
from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import Step, Trajectory


def test_doors_are_read_at_the_last_token_of_a_step() -> None:
    """Three steps of two tokens: after the first come four sampled tokens, after the second two."""
    steps, ids = [], list[int]()
    for number in range(3):
        ids = [*ids, 1]
        steps.append(Step(ids, [2, 3], [-1.0, -1.0], 0, "stop", "", "", "", reward=float(number == 2)))
        ids = [*ids, 2, 3]
    metrics = {f"right_{room}": float(room == "hall") for room in ROOMS}
    trajectory = Trajectory("0", 0, 0, 0, steps, terminated=True, metrics=metrics)
    rows = build_samples([trajectory], "merged")
    rows[0].advantages = np.arange(len(rows[0]), dtype=np.float32)
    seen = doors(rows, [trajectory])
    assert (seen.credit.tolist(), seen.after.tolist()) == ([[2, 5, 8]], [[4, 2, 0]])
    assert seen.right.tolist() == [[1, 0, 0]]


def test_true_advantages_by_hand() -> None:
    """Half of the doors are right: a right one adds (1 - 1/2) / 3 to the expected return."""
    right = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    assert true_advantages(right) * 6 == pytest.approx(np.array([[1, -1, 0], [-1, 1, 0]]))
