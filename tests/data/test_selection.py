"""DAPO's dynamic sampling (section 7)."""

import pytest

from rl_agents.data.selection import first_groups, informative_groups

GROUPS = [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_only_the_mixed_group_is_kept_and_kept_whole():
    keep = informative_groups([1, 1, 1, 1, 0, 1, 0, 0, 0], GROUPS)
    assert keep.tolist() == [False] * 3 + [True] * 3 + [False] * 3


def test_returns_are_compared_by_the_tolerance_of_advantages():
    assert informative_groups([1e-5, 0, 1, 0.5, 1.0], [0, 0, 1, 1, 2]).tolist() == [False, False, True, True, False]
    assert informative_groups([1e6, 1e6 + 1], [0, 0]).tolist() == [True, True]
    assert informative_groups([], []).tolist() == []


def test_cut_keeps_whole_groups_in_row_order():
    groups = [5, 3, 5, 3, 4, 4]
    assert first_groups(groups, [True] * 6, 1).tolist() == [True, False, True, False, False, False]
    keep = first_groups(groups, [False, True, False, True, True, True], 2)
    assert keep.tolist() == [False, True, False, True, True, True]


def test_too_few_groups_is_an_error():
    with pytest.raises(ValueError, match="1 informative groups, 2 wanted"):
        first_groups([0, 0, 1, 1], [True, True, False, False], 2)
