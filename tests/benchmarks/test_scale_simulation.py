"""The simulation of many engines, at a size of seconds."""

from pathlib import Path

import pytest

from benchmarks import scale_simulation
from benchmarks.scale_simulation import STEPS_PER_S, cores, job, measure, measure_pool, table

TURNS, EPISODES = 2, 16


@pytest.mark.usefixtures("ray_session")
def test_a_small_simulation_counts_every_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_simulation, "in_new_process", lambda work, message: work(message))
    case = measure(job(tmp_path / "model", TURNS), 12, EPISODES, 200.0, tmp_path / "run.sqlite")
    pool = measure_pool(EPISODES, tmp_path / "pool.sqlite")
    assert (case["in flight"], case["runners"], case["steps"]) == (1200, 75, EPISODES * TURNS)
    assert all(case[name] > 0 for name in ("exchanges", "message bytes")) and pool["call bytes"] > 0
    measured = ("runner us", "driver us", "driver bytes")  # 0 where so little work takes no tick and no new page
    assert all(case[name] >= 0 for name in measured)
    assert len(table({"cases": [case], "pools": [pool]}).splitlines()) == 3


def test_cores_follow_from_the_time_of_a_step() -> None:
    """100 engines sample 750 steps a second; the pool counts with the nearest number of episodes."""
    case = {
        "engines": 100, "in flight": 10_000, "driver us": 100, "learner feed us": 300, "pool, outcomes us": 20,
        "runner us": 2000, "engine actors us": 1000,
    }  # fmt: skip
    needed = cores(case, [{"in flight": 9000, "call us": 80}, {"in flight": 1, "call us": 9}])
    assert STEPS_PER_S == 7.5
    assert needed == pytest.approx({"driver": 0.3, "pool writer": 0.075, "env runners": 1.5, "engine actors": 0.75})
