"""GRPO, Dr.GRPO, RLOO, NeMo leave-one-out, REINFORCE++ and its baseline variant (sections 4-6)."""

import numpy as np
import pytest

from rl_agents.credit.group import (
    dr_grpo,
    grpo,
    leave_one_out,
    reinforce_plus_plus,
    reinforce_plus_plus_baseline,
    reward_to_go,
    rloo,
)

ESTIMATORS = [grpo, dr_grpo, rloo, leave_one_out]


def test_grpo_examples():
    groups = [0] * 4
    sign = np.array([1, -1, -1, 1])
    assert grpo([1, 0, 0, 1], groups) == pytest.approx(0.866024 * sign, abs=1e-6)
    assert grpo([1, 0, 0, 1], groups, ddof=0) == pytest.approx(0.999998 * sign, abs=1e-6)
    assert dr_grpo([1, 0, 0, 1], groups) == pytest.approx(0.5 * sign)
    assert grpo([1, 0, 0, 0], groups) == pytest.approx([1.499997] + [-0.499999] * 3, abs=1e-6)
    assert dr_grpo([1, 0, 0, 0], groups) == pytest.approx([0.75] + [-0.25] * 3)


def test_leave_one_out_example():
    assert leave_one_out([1, 0, 0, 0], [0] * 4) == pytest.approx([1.0] + [-0.577349] * 3, abs=1e-6)


def test_leave_one_out_against_its_definition():
    rewards = np.array([0.3, 1.0, -0.4, 0.8, 0.0])
    expected = []
    for i in range(5):
        others = np.delete(rewards, i)
        expected.append((rewards[i] - others.mean()) / (others.std(ddof=1) + 1e-6))
    assert leave_one_out(rewards, [0] * 5) == pytest.approx(expected)
    unscaled = leave_one_out(rewards, [0] * 5, divide_by_std=False)
    assert unscaled == pytest.approx(rloo(rewards, [0] * 5))


def test_leave_one_out_does_not_normalise_a_group_of_two():
    assert leave_one_out([1.0, 0.5], [0, 0]).tolist() == [0.5, -0.5]


def test_rloo_example_and_relation_to_dr_grpo():
    assert rloo([1, 0, 0.5], [0] * 3) == pytest.approx([0.75, -0.75, 0.0])
    rewards, groups = [0.2, 3.0, -1.0, 5.0, 2.0], [1, 0, 1, 0, 1]
    factor = np.array([3 / 2, 2, 3 / 2, 2, 3 / 2])
    assert rloo(rewards, groups) == pytest.approx(factor * dr_grpo(rewards, groups))


@pytest.mark.parametrize(("estimator", "expected"), [(grpo, 0.7), (dr_grpo, 0.7), (rloo, 0.7), (leave_one_out, 0.0)])
def test_group_of_one(estimator, expected):
    assert estimator([0.7], [0]).tolist() == [expected]
    if estimator is not leave_one_out:
        assert estimator([0.7], [0], singleton="zero").tolist() == [0.0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_equal_rewards_give_exactly_zero(estimator):
    rewards = [0.1 + 0.2, 0.3, 0.3, -5.0, -5.0, -5.0, 1.0, 0.0]
    advantages = estimator(rewards, [0, 0, 0, 1, 1, 1, 2, 2])
    assert advantages[:6].tolist() == [0.0] * 6
    assert advantages[6] > 0 > advantages[7]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_padding_rows_are_counted_nowhere(estimator):
    plain = estimator([1, 0, 0], [0, 0, 0])
    padded = estimator([1, float("nan"), 0, 0, 50.0], [0, 0, 0, 0, 9], valid=[1, 0, 1, 1, 0])
    assert padded[[0, 2, 3]] == pytest.approx(plain)
    assert padded[[1, 4]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_step_rows_carry_the_trajectory_advantage(estimator):
    rows = ([10, 10, 10, 0, 4], [0] * 5)
    trajectories = [5, 5, 5, 6, 7]
    by_trajectory = estimator(*rows, trajectories=trajectories)
    assert by_trajectory == pytest.approx(estimator([10, 0, 4], [0] * 3)[[0, 0, 0, 1, 2]])
    by_row = estimator(*rows, trajectories=trajectories, statistics="step_rows")
    assert by_row == pytest.approx(estimator(*rows))
    assert np.abs(by_row - by_trajectory).max() > 0.1


def test_rows_of_one_trajectory_with_different_returns_are_an_error():
    with pytest.raises(ValueError, match="different returns"):
        grpo([1.0, 2.0], [0, 0], trajectories=[3, 3])
    with pytest.raises(ValueError, match="one length"):
        grpo([1.0, 2.0], [0])


def test_empty_batch_gives_an_empty_answer():
    for estimator in ESTIMATORS:
        assert estimator([], []).shape == (0,)


def test_all_rows_padded_gives_zeros():
    for estimator in ESTIMATORS:
        assert estimator([1.0, 2.0], [0, 0], valid=[0, 0]).tolist() == [0.0, 0.0]


def test_reinforce_plus_plus_example():
    beta, kl = 0.1, [[0.1, 0, 0.2], [0, 0.3, 9]]
    rewards = [np.array([0, 0, 1.0]) - beta * np.array(kl[0]), np.array([0, -1.0, 8]) - beta * np.array(kl[1])]
    masks = [[1, 1, 1], [1, 1, 0]]
    returns = reward_to_go(rewards, masks)
    assert np.concatenate(returns) == pytest.approx([0.97, 0.98, 0.98, -1.03, -1.03, 0.0])
    advantages = np.concatenate(reinforce_plus_plus(rewards, masks))
    assert advantages == pytest.approx([0.724226, 0.733324, 0.733324, -1.095438, -1.095438, 0.0], abs=1e-6)


def test_reinforce_plus_plus_baseline_example():
    masks = [[1, 1], [1], [1], [1, 1]]
    advantages = reinforce_plus_plus_baseline([1, 0, 1, 1], masks, [0, 0, 1, 1])
    expected = [1.107019, 1.107019, -1.549826, -0.221404, -0.221404, -0.221404]
    assert np.concatenate(advantages) == pytest.approx(expected, abs=1e-6)


def test_reinforce_plus_plus_baseline_group_of_one_subtracts_nothing():
    together = reinforce_plus_plus_baseline([3.0, 1.0], [[1, 1], [1, 1]], [0, 1])
    assert np.concatenate(together) == pytest.approx(
        np.concatenate(reinforce_plus_plus([[0, 3.0], [0, 1.0]], [[1, 1]] * 2))
    )


def test_reinforce_plus_plus_baseline_skips_padding_rows():
    plain = reinforce_plus_plus_baseline([1, 0], [[1, 1], [1]], [0, 0])
    padded = reinforce_plus_plus_baseline([1, 0, 9], [[1, 1], [1], [1]], [0, 0, 0], valid=[1, 1, 0])
    assert np.concatenate(padded) == pytest.approx([*np.concatenate(plain), 0.0])


def test_equal_returns_whiten_to_zero():
    advantages = reinforce_plus_plus([[0, 1.0], [0, 1.0]], [[1, 1], [1, 1]])
    assert np.concatenate(advantages) == pytest.approx(np.zeros(4), abs=1e-3)


def test_whitening_of_a_single_token_is_an_error():
    with pytest.raises(ValueError, match="got 1"):
        reinforce_plus_plus([[1.0, 5.0]], [[1, 0]])


def test_nemo_variant_uses_population_variance_with_a_floor():
    advantages = np.concatenate(reinforce_plus_plus([[2.0], [0.0]], [[1], [1]], ddof=0, floor="clamp"))
    assert advantages == pytest.approx([1.0, -1.0])


def test_an_action_before_a_tool_observation_keeps_its_credit():
    rewards, mask = [0, 0, 0, 0, 0, 1.0], [1, 1, 0, 0, 1, 1]
    kept = reward_to_go([rewards], [mask], gamma=0.9)[0]
    assert kept == pytest.approx([0.9**3, 0.9**2, 0, 0, 0.9, 1.0])  # observation tokens cost no discount
    cut = reward_to_go([rewards], [mask], gamma=0.9, at_observation="reset")[0]
    assert cut == pytest.approx([0, 0, 0, 0, 0.9, 1.0])


def test_rewards_in_padding_are_never_credited():
    for at_observation in ("skip", "reset"):
        returns = reward_to_go([[0, 1.0, 50.0, float("nan")]], [[1, 1, 0, 0]], at_observation=at_observation)
        assert returns[0].tolist() == [1.0, 1.0, 0.0, 0.0]


def test_reward_to_go_across_the_step_rows_of_a_trajectory():
    rewards, masks = [[0, 1.0], [0, 0]], [[1, 1], [1, 0]]
    inside = reward_to_go(rewards, masks, gamma=0.5)
    across = reward_to_go(rewards, masks, gamma=0.5, trajectories=[3, 3], step_index=[1, 0])
    assert [r.tolist() for r in inside] == [[0.5, 1.0], [0.0, 0.0]]
    assert [r.tolist() for r in across] == [[0.5, 1.0], [0.25, 0.0]]
    with pytest.raises(ValueError, match="needs step_index"):
        reward_to_go(rewards, masks, trajectories=[3, 3])
