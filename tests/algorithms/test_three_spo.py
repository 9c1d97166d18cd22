"""3SPO scores, counts, rewards and sibling advantages (section 13)."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_agents.algorithms.three_spo import (
    failure_gains,
    gate,
    novelty_weight,
    path_gains,
    rollout_count,
    sibling_advantages,
    state_score,
    step_reward,
    success_rate,
)


def scored(total, wins, depth, alpha=50.0):
    """S by equation 1, and the gate."""
    opened = gate(total, wins)
    return np.where(opened, state_score(success_rate(total, wins), depth, alpha=alpha), 0.0), opened


@pytest.mark.parametrize(
    ("total", "wins", "depth", "alpha", "score", "count"),
    [
        (0, 0, 5, 50.0, 1.0, 8),
        (5, 0, 7, 50.0, 1.0, 8),
        (10, 1, 2, 50.0, 0.03125, 1),
        (10, 1, 7, 50.0, 5.94991e-5, 1),
        (10, 0, 7, 50.0, 0.0, 0),
        (11, 1, 7, 50.0, 0.0, 0),
        (10, 5, 7, 50.0, 7.45678e-22, 1),
        (10, 5, 1, 50.0, 1.0, 8),
        (10, 5, 7, 1.0, 0.377965, 4),
        (10, 6, 7, 1.0, 0.311130, 3),
    ],
)
def test_scores_and_counts_of_the_reference_table(total, wins, depth, alpha, score, count):
    found, opened = scored(total, wins, depth, alpha)
    assert float(found) == pytest.approx(score, rel=1e-4, abs=1e-30)
    assert int(rollout_count(found, opened)) == count


@pytest.mark.parametrize(
    ("total", "wins", "is_open"),
    [(0, 0, True), (9, 0, True), (10, 0, False), (10, 1, True), (11, 1, False), (20, 2, False), (12, 2, True)],
)
def test_gate_closes_only_with_many_failures_and_a_low_rate(total, wins, is_open):
    assert bool(gate(total, wins)) is is_open


def test_mastered_state_walks_through_where_float32_would_truncate():
    found, opened = scored(1000, 1000, 9)
    assert 0 < float(found) < 1e-45  # below the smallest float32
    assert np.float32(found) == 0.0
    assert int(rollout_count(np.float32(found), opened)) == 1


def test_published_alpha_allows_only_zero_one_or_all_rollouts():
    total, wins, depth = (grid.ravel() for grid in np.meshgrid(np.arange(61), np.arange(61), np.arange(2, 51)))
    possible = wins <= total
    args = total[possible], wins[possible], depth[possible]
    assert set(rollout_count(*scored(*args)).tolist()) == {0, 1, 8}
    assert set(rollout_count(*scored(*args, alpha=1.0)).tolist()) == set(range(9))


def test_impossible_statistics_are_errors():
    with pytest.raises(ValueError, match="between 0 and total"):
        success_rate(1, 2)
    with pytest.raises(ValueError, match="counts from 1"):
        state_score(1.0, 0)


def test_novelty_weight():
    assert novelty_weight([0, 7, 10]) == pytest.approx([0.5, 0.248293, 0.183940], abs=1e-6)
    assert float(novelty_weight(math.log(2) / 0.1)) == pytest.approx(0.25)
    assert novelty_weight([0, 50], fixed=0.25).tolist() == [0.25, 0.25]


def test_step_rewards_of_the_reference_example():
    weight = novelty_weight(10)
    rewards = step_reward([1, 1, 1], 0.3 - np.array([0.2, 0.6, 0.2]), [0, 0, 0], weight)
    assert rewards == pytest.approx([0.215546, 0.089122, 0.215546], abs=1e-6)


def test_only_child_and_identical_siblings_get_zero():
    for norm in ("none", "group"):
        assert sibling_advantages([0.7], [0], [False], norm=norm).tolist() == [0.0]
        found = sibling_advantages([0.1 + 0.2, 0.3, 0.3], [0, 0, 0], [False] * 3, norm=norm)
        assert found.tolist() == [0.0] * 3


def test_siblings_of_different_states_are_not_compared_and_share_one_scale():
    rewards, groups = [1.0, 5.0, 0.0, 2.0], [0, 1, 0, 1]
    found = sibling_advantages(rewards, groups, [False] * 4, norm="none")
    assert found == pytest.approx([1.0, 3.0, -1.0, -3.0], abs=1e-6)
    published = sibling_advantages(rewards, groups, [False] * 4, norm="group")
    assert published == pytest.approx([0.707106, 0.707106, -0.707106, -0.707106], abs=1e-5)


def test_a_difference_of_a_thousandth_is_as_large_as_a_success_by_the_siblings_own_deviation():
    small = [0.5] * 7 + [0.501]
    assert sibling_advantages(small, [0] * 8, [False] * 8, norm="group")[-1] == pytest.approx(2.47, abs=0.01)
    assert sibling_advantages(small, [0] * 8, [False] * 8, norm="none")[-1] == pytest.approx(0.00175)


def test_steps_that_led_to_a_success_gain_and_last_steps_count_both_ways():
    """γ = ½, V = 0.1, 0.6, 0.2: ¼ - 0.1 = 0.15; ½ - 0.6 < 0; 1 - 0.2 = 0.8; failed: 0 - 0.2."""
    assert path_gains([0.1, 0.6, 0.2], 0.5, solved=True) == pytest.approx([0.15, 0.0, 0.8])
    assert path_gains([0.1, 0.6, 0.2], 0.5, solved=False) == pytest.approx([0.0, 0.0, -0.2])
    assert path_gains([], 0.9, solved=True).size == 0


def test_a_failed_path_is_gae() -> None:
    """γ = 1, V = 0.4, 0.6, 0.2: A_3 = -0.2, A_2 = -0.4 + 0.95·A_3 = -0.59, A_1 = 0.2 + 0.95·A_2 = -0.3605."""
    assert failure_gains([0.4, 0.6, 0.2], 1.0) == pytest.approx([-0.3605, -0.59, -0.2])
    assert failure_gains([0.4, 0.6], 0.5) == pytest.approx([-0.1 - 0.475 * 0.6, -0.6])
    assert failure_gains([], 0.9).size == 0


@pytest.mark.parametrize(("norm", "siblings"), [("none", [1.0, -1.0]), ("group", [0.707106, -0.707106])])
def test_paths_are_in_units_of_the_return(norm, siblings):
    """R = 1 and 0: a success counts ½, so A = ±½/½; a path's gain of 0.2 with weight 2 is 0.4."""
    found = sibling_advantages([1.0, 0.0, 0.2], [0, 0, 7], [False, False, True], norm=norm, weight=2.0)
    assert found == pytest.approx([*siblings, 0.4], abs=1e-5)


CHANCES = st.floats(0.0, 1.0)


@given(st.lists(CHANCES, min_size=1, max_size=40), CHANCES, st.booleans(), st.floats(0.0, 3.0))
def test_advantages_of_a_path_are_at_most_its_weight_whatever_the_values(values, gamma, solved, weight):
    gains = path_gains(values, gamma, solved) if solved else failure_gains(values, gamma)
    found = sibling_advantages(gains, range(len(values)), [True] * len(values), norm="none", weight=weight)
    assert np.abs(found).max() <= weight + 1e-9


@given(
    st.lists(st.tuples(st.booleans(), CHANCES, st.booleans(), st.booleans()), min_size=1, max_size=8), CHANCES,
    st.floats(0.0, 0.5), st.booleans(),
)  # fmt: skip
def test_advantages_of_siblings_are_bounded_whatever_the_values(children, value, weight, by_value):
    """|A| <= 2 with the difference of values, |A| <= 3 with that of scores, in which a success counts once more."""
    novel, after, ended, won = (np.array(column) for column in zip(*children, strict=True))
    if by_value:
        gained, solved = np.where(ended, won, after) - value, np.zeros(len(children))
    else:
        gained, solved = value - np.where(won, 0.0, after), won
    rewards = step_reward(novel, gained, solved, weight)
    found = sibling_advantages(rewards, [0] * len(children), [False] * len(children), norm="none")
    assert np.abs(found).max() <= (2.0 if by_value else 3.0) + 1e-9
