"""The simulation of many engines, at a size of seconds."""

import pytest

from benchmarks.scale_simulation import STEPS_PER_S, cores

TURNS, EPISODES = 2, 16


def test_cores_follow_from_the_time_of_a_step() -> None:
    """100 engines sample 750 steps a second; the pool counts with the nearest number of episodes."""
    case = {
        "engines": 100, "in flight": 10_000, "driver us": 100, "learner feed us": 300, "pool, outcomes us": 20,
        "runner us": 2000, "engine actors us": 1000,
    }  # fmt: skip
    needed = cores(case, [{"in flight": 9000, "call us": 80}, {"in flight": 1, "call us": 9}])
    assert STEPS_PER_S == 7.5
    assert needed == pytest.approx({"driver": 0.3, "pool writer": 0.075, "env runners": 1.5, "engine actors": 0.75})
