"""Micro-batches: every row once, within the limit, with little padding. Folding: the same sums from fewer rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agents.algorithms import Settings
from rl_agents.data.samples import Row
from rl_agents.learner.batching import micro_batches
from rl_agents.learner.training_data import AgentTrainingData, folded


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 4000))
def test_micro_batches_hold_every_row_once_within_the_limit(lengths: list[int], limit: int) -> None:
    batches = list(micro_batches(list(map(range, lengths)), limit))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= limit


@pytest.mark.parametrize(("limit", "most"), [(16384, 1.35), (4096, 1.2)])
def test_one_long_row_does_not_pad_the_others(limit: int, most: float) -> None:
    lengths = [157] + [20 + index % 40 for index in range(127)]
    batches = list(micro_batches(list(map(range, lengths)), limit))
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert padded < most * sum(lengths)
    assert len(batches) < 10


def sibling(index: int, token: int, advantage: float, group: int = 0) -> Row:
    """A row of two prompt tokens and one sampled token."""
    mask = np.array([0, 0, 1], dtype=np.float32)
    row = Row(index, group, np.array([1, 2, token], np.int32), mask, mask * -1, np.array([-1, -1, 0], np.int32), mask)
    row.advantages = mask * np.float32(advantage)
    return row


SIBLINGS = [sibling(0, 7, 1.0), sibling(1, 8, -0.5), sibling(2, 7, 1.0), sibling(3, 9, 0.0), sibling(4, 7, 2.0, 1)]


def test_folding_keeps_the_weighted_sums() -> None:
    weights = {"rl": [row.mask * np.float32(0.2) for row in SIBLINGS]}
    chosen, summed = folded(SIBLINGS, range(5), weights, keep_silent=False)
    assert chosen == [0, 1, 4], "equal siblings are one row, silent ones none, other groups apart"
    before = sum(float((w * row.advantages).sum()) for w, row in zip(weights["rl"], SIBLINGS, strict=True))
    after = sum(float((w * SIBLINGS[i].advantages).sum()) for i, w in zip(chosen, summed["rl"], strict=True))
    assert after == pytest.approx(before)
    assert folded(SIBLINGS, range(5), weights, keep_silent=True)[0] == [0, 1, 3, 4]


def test_folded_schedule_holds_only_rows_that_teach() -> None:
    settings = Settings.from_dict({"algo": "3spo", "minibatches": 1, "loss_agg_mode": "seq-mean-token-mean"})
    data = AgentTrainingData.build(SIBLINGS, settings, np.random.default_rng(0), fold=True)
    assert [row.trajectory for row in data.rows] == [0, 1, 4]
    (minibatch,) = data.minibatches
    assert minibatch.rows == [0, 1, 2]
    assert [float(w.sum()) for w in minibatch.weights["rl"]] == pytest.approx([0.4, 0.2, 0.2])
    silent = AgentTrainingData.build([SIBLINGS[3]], settings, np.random.default_rng(0), fold=True)
    assert not silent.minibatches


def test_the_share_of_the_run_is_right_however_many_steps_an_iteration_has() -> None:
    """Two episodes make two steps, not ``minibatches``; an update of a search is one of many of its iteration."""
    settings, found = Settings.from_dict({"minibatches": 8}), list[float]()
    for iteration in range(4):
        data = AgentTrainingData.build(SIBLINGS[:2], settings, np.random.default_rng(0))
        data.set_progress(iteration, 4, several=False)
        found += [minibatch.done for shard, _ in data.shard(1) for minibatch in shard.minibatches]
    assert found == [number / 8 for number in range(8)]
    data.set_progress(3, 4, several=True)
    assert {minibatch.done for minibatch in data.minibatches} == {0.75}
