"""Micro-batches: every row once, within the limit, with little padding."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agents.core.training_data import micro_batches


class Rows(SimpleNamespace):
    """Something of a length."""

    def __len__(self) -> int:
        return int(self.length)


def rows(lengths: list[int]) -> list[Any]:
    return [Rows(length=length) for length in lengths]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 4000))
def test_micro_batches_hold_every_row_once_within_the_limit(lengths: list[int], limit: int) -> None:
    batches = list(micro_batches(rows(lengths), limit))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[i] for i in batch) * len(batch) <= limit


@pytest.mark.parametrize(("limit", "most"), [(16384, 1.35), (4096, 1.2)])
def test_one_long_row_does_not_pad_the_others(limit: int, most: float) -> None:
    lengths = [157] + [20 + index % 40 for index in range(127)]
    batches = list(micro_batches(rows(lengths), limit))
    padded = sum(max(lengths[i] for i in batch) * len(batch) for batch in batches)
    assert padded < most * sum(lengths)
    assert len(batches) < 10
