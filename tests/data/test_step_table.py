"""The table of interaction steps: what group statistics count."""

import numpy as np
import pytest
from algorithms.handmade import episode

from rl_agents.data.samples import build_samples
from rl_agents.data.step_table import StepTable


@pytest.mark.parametrize("layout", ["merged", "per_step"])
def test_returns_by_trajectory_and_by_step(layout: str) -> None:
    episodes = [episode(4, [0, 2]), episode(7, [1]), episode(4, [0, 0, 5])]
    episodes[2].steps[0].valid = episodes[2].steps[1].valid = False
    table = StepTable.build(build_samples(episodes, layout), episodes, 0.5)

    values, groups, of_step = table.returns("trajectories")
    assert values.tolist() == [2.0, 1.0, 4.0] and groups.tolist() == [4, 7, 4]
    assert of_step.tolist() == [0, 0, 1, 2, 2, 2]
    assert table.returns("trajectories", penalized=False).values.tolist() == [2.0, 1.0, 5.0]

    values, groups, of_step = table.returns("step_rows")
    assert values.tolist() == [2.0, 2.0, 1.0, 4.5, 4.5, 5.0] and groups.tolist() == [4, 4, 7, 4, 4, 4]
    assert of_step.tolist() == list(np.arange(6))
