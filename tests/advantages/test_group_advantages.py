"""GRPO, Dr.GRPO, RLOO, NeMo leave-one-out, REINFORCE++ and its baseline variant (sections 4-6)."""

from functools import partial

import numpy as np
import pytest
from advantages.chains import after

from rl_agents.advantages import grpo, leave_one_out, reward_to_go, rloo, whiten_rows

dr_grpo = partial(grpo, std="none")
ESTIMATORS = [grpo, dr_grpo, rloo, leave_one_out]


def to_go(rewards, masks, trajectories=None, steps=None, *, gamma=1.0):
    """Every row its own trajectory unless told otherwise."""
    rows = range(len(rewards))
    trajectories, steps = trajectories or rows, steps or [0] * len(rewards)
    return reward_to_go(rewards, masks, after(trajectories, steps), gamma=gamma)


def reinforce_plus_plus(rewards, masks):
    return np.concatenate(whiten_rows(to_go(rewards, masks), masks))


def test_grpo_examples():
    groups = [0] * 4
    sign = np.array([1, -1, -1, 1])
    assert grpo([1, 0, 0, 1], groups) == pytest.approx(0.866024 * sign, abs=1e-6)
    assert grpo([1, 0, 0, 1], groups, std="population") == pytest.approx(0.999998 * sign, abs=1e-6)
    assert dr_grpo([1, 0, 0, 1], groups) == pytest.approx(0.5 * sign)
    assert grpo([1, 0, 0, 0], groups) == pytest.approx([1.499997] + [-0.499999] * 3, abs=1e-6)
    assert dr_grpo([1, 0, 0, 0], groups) == pytest.approx([0.75] + [-0.25] * 3)


def test_leave_one_out_divides_by_the_deviation_that_is_asked_for():
    # The others of a 0 are 1, 0, 0: mean 1/3, population deviation sqrt(2)/3.
    population = leave_one_out([1, 0, 0, 0], [0] * 4, std="population")
    assert population == pytest.approx([1.0] + [-0.707105] * 3, abs=1e-6)
    assert leave_one_out([1, 0, 0, 0], [0] * 4, std="none") == pytest.approx(rloo([1, 0, 0, 0], [0] * 4))


def test_leave_one_out_does_not_normalize_a_group_of_two():
    assert leave_one_out([1.0, 0.5], [0, 0]).tolist() == [0.5, -0.5]


def test_leave_one_out_does_not_divide_by_the_rounding_of_large_returns():
    # The others of -1 all have 100: -1 - 100. Those of a 100 have mean 49.5 and deviation 101/√2: 50.5/71.418.
    assert leave_one_out([-1.0, 100.0, 100.0], [0] * 3) == pytest.approx([-101.0, 0.707107, 0.707107], abs=1e-6)


def test_rloo_example_and_relation_to_dr_grpo():
    assert rloo([1, 0, 0.5], [0] * 3) == pytest.approx([0.75, -0.75, 0.0])
    rewards, groups = [0.2, 3.0, -1.0, 5.0, 2.0], [1, 0, 1, 0, 1]
    factor = np.array([3 / 2, 2, 3 / 2, 2, 3 / 2])
    assert rloo(rewards, groups) == pytest.approx(factor * dr_grpo(rewards, groups))


@pytest.mark.parametrize(
    ("returns", "groups", "different"),
    [
        ([0, 1e-5, -1e-5, 0], [0] * 4, False),  # all fail, and a KL in the reward tells them apart
        ([0, 1e-5, 0, 0, 0, 1], [0] * 4 + [1] * 2, False),
        ([0, 2e-4, 0, 0], [0] * 4, True),
        ([1e6, 1e6 + 1], [0] * 2, True),
        ([1e6, 1e6 + 0.0625], [0] * 2, False),  # neighbors in float32
        ([0, 0.01, 0, 200], [0, 0, 1, 1], False),  # a ten-thousandth of 200 is 0.02
        ([0, 0.03, 0, 200], [0, 0, 1, 1], True),
    ],
)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_returns_are_equal_by_the_spread_that_they_can_have_not_by_their_size(estimator, returns, groups, different):
    first = estimator(returns, groups)[np.array(groups) == 0]
    assert bool(np.any(first != 0.0)) == different


def test_returns_near_a_million_have_the_advantages_of_small_ones():
    assert grpo([1e6, 1e6 + 1], [0, 0]) == pytest.approx([-0.707106, 0.707106], abs=1e-6)
    # The others of the 1 are equal, so that their deviation does not divide; 0 has -0.500005/0.7071.
    assert leave_one_out([0, 1e-5, 1], [0] * 3) == pytest.approx([-0.707120, -0.707092, 0.999995], abs=1e-6)


def test_empty_batch_gives_an_empty_answer():
    for estimator in ESTIMATORS:
        assert estimator([], []).shape == (0,)


def test_reinforce_plus_plus_has_no_advantage_where_only_rounding_differs():
    masks = [[1, 1, 1], [1, 1, 0]]
    for size in (0.0, 1.0, -200.0):
        rewards = [np.array([0, 1e-7, size]), np.array([-1e-7, size, 9.0])]
        assert reinforce_plus_plus(rewards, masks).tolist() == [0.0] * 6
    # Mean 5e-4, variance 5e-7: 5e-4/√(5e-7 + 1e-8).
    apart = reinforce_plus_plus([[0.0, 0.0], [1e-3, 0.0]], [[1, 0], [1, 0]])
    assert apart[[0, 2]] == pytest.approx([-0.700140, 0.700140], abs=1e-6)


def test_an_action_before_a_tool_observation_keeps_its_credit():
    rewards, mask = [0, 0, 0, 0, 0, 1.0], [1, 1, 0, 0, 1, 1]
    kept = to_go([rewards], [mask], gamma=0.9)[0]
    assert kept == pytest.approx([0.9**3, 0.9**2, 0, 0, 0.9, 1.0])  # observation tokens cost no discount


def test_rewards_in_padding_are_never_credited():
    returns = to_go([[0, 1.0, 50.0, float("nan")]], [[1, 1, 0, 0]])
    assert returns[0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_reward_to_go_across_the_step_rows_of_a_trajectory():
    rewards, masks = [[0, 1.0], [0, 0]], [[1, 1], [1, 0]]
    across = to_go(rewards, masks, [3, 3], [1, 0], gamma=0.5)
    assert [r.tolist() for r in across] == [[0.5, 1.0], [0.25, 0.0]]
    assert [r.tolist() for r in to_go(rewards, masks, gamma=0.5)] == [[0.5, 1.0], [0.0, 0.0]]
