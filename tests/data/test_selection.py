"""The cut of DAPO's dynamic sampling; what it keeps: tests/algorithms/test_credit.py."""

from rl_agents.data.selection import first_groups


def test_cut_keeps_whole_groups_in_row_order():
    groups = [5, 3, 5, 3, 4, 4]
    assert first_groups(groups, [True] * 6, 1).tolist() == [True, False, True, False, False, False]
    keep = first_groups(groups, [False, True, False, True, True, True], 2)
    assert keep.tolist() == [False, True, False, True, True, True]
