"""What a pool keeps of an update: a step's mean advantage, and its value where the critic is read."""

import numpy as np
import pytest

from rl_agents.data.samples import Row
from rl_agents.store.records import BatchRow, Credit
from rl_agents.trainer.run_store import batch_records


def row(**more: np.ndarray | None) -> Row:
    """Two steps of two and three sampled tokens."""
    ids, mask = np.arange(7, dtype=np.int32), np.array([0, 1, 1, 0, 1, 1, 1], np.float32)
    segments = np.array([-1, 0, 0, -1, 1, 1, 1], np.int32)
    found = Row(0, 0, ids, mask, mask.copy(), segments, np.zeros(7, np.float32))
    found.advantages = np.array([9, 1, 2, 9, 3, 4, 8], np.float32)
    for name, value in more.items():
        setattr(found, name, value)
    return found


FIRST = np.array([0, 1, 0, 0, 1, 0, 0], np.float32)


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({}, [None, None]),
        ({"values": np.array([9, 1, 3, 9, 2, 4, 6], np.float32)}, [2.0, 4.0]),
        # StepPO's critic is read before the first token of each action.
        ({"values": np.array([9, 1, 3, 9, 2, 4, 6], np.float32), "value_mask": FIRST}, [1.0, 2.0]),
    ],
)
def test_what_steps_were_worth(more, values):
    records = batch_records(3, 1, [row(**more)], ["a"])
    assert records[0] == BatchRow(3, 1, 0, "a")
    assert records[1:] == [Credit(3, 1, "a", 0, 1.5, values[0]), Credit(3, 1, "a", 1, 5.0, values[1])]
