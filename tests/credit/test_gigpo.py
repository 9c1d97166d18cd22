"""GiGPO (section 10)."""

import numpy as np
import pytest

from rl_agents.credit.gae import discounted_returns
from rl_agents.credit.gigpo import anchor_clusters, anchor_key, gigpo, step_advantages

ANCHORS = ["s0", "s1", "s2", "s0", "s1", "s1", "s3"]
TRAJECTORIES, STEPS = [0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 0, 1, 2, 3]
GROUPS = [0] * 7
EPISODE = [10.0] * 3 + [0.0] * 4
RETURNS = discounted_returns([0, 0, 10, 0, 0, 0, 0], TRAJECTORIES, STEPS)


def test_step_advantages_of_the_reference_example():
    clusters = anchor_clusters(ANCHORS, GROUPS)
    expected = [0.707107, 1.154700, 0, -0.707107, -0.577350, -0.577350, 0]
    assert step_advantages(RETURNS, clusters, norm="mean_std") == pytest.approx(expected, abs=1e-5)
    expected = [4.5125, 6.333333, 0, -4.5125, -3.166667, -3.166667, 0]
    assert step_advantages(RETURNS, clusters) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("statistics", "norm", "expected"),
    [
        ("step_rows", "mean_std", [1.776151, 2.223745, 1.069045, -1.508890, -1.379134, -1.379134, -0.801784]),
        ("trajectories", "mean_std", [1.414213, 1.861807, 0.707107, -1.414213, -1.284457, -1.284457, -0.707107]),
        ("trajectories", "mean", [9.5125, 11.333333, 5, -9.5125, -8.166667, -8.166667, -5]),
    ],
)
def test_combined_advantages_of_the_reference_example(statistics, norm, expected):
    advantages = gigpo(EPISODE, RETURNS, ANCHORS, GROUPS, TRAJECTORIES, statistics=statistics, norm=norm)
    assert advantages == pytest.approx(expected, abs=1e-5)


def test_omega_zero_is_the_episode_advantage():
    advantages = gigpo(EPISODE, RETURNS, ANCHORS, GROUPS, TRAJECTORIES, omega=0.0)
    assert advantages.tolist() == [5.0] * 3 + [-5.0] * 4


def test_clusters_never_cross_groups_and_count_repeated_visits():
    assert anchor_clusters(["x", "x", "x"], [0, 1, 0]).tolist() == [0, 1, 0]
    repeated = anchor_clusters(["x", "x"], [0, 0])
    assert step_advantages([1.0, 0.0], repeated).tolist() == [0.5, -0.5]


def test_cluster_of_one_gets_zero_where_an_episode_of_one_keeps_its_return():
    assert step_advantages([3.0], [0], norm="mean_std").tolist() == [0.0]
    assert gigpo([3.0], [3.0], ["x"], [0], [0]).tolist() == [3.0]


def test_failed_group_is_zero_unless_penalties_differ():
    zeros = [0.0] * 7
    assert gigpo(zeros, zeros, ANCHORS, GROUPS, TRAJECTORIES, norm="mean_std").tolist() == zeros
    penalised = [-0.1, 0, 0, 0, 0, 0, 0]
    advantages = gigpo(zeros, penalised, ANCHORS, GROUPS, TRAJECTORIES)
    assert advantages == pytest.approx([-0.05, 0, 0, 0.05, 0, 0, 0])


def test_row_order_does_not_matter():
    order = np.random.default_rng(0).permutation(7)
    shuffled = gigpo(
        np.array(EPISODE)[order],
        RETURNS[order],
        [ANCHORS[i] for i in order],
        GROUPS,
        np.array(TRAJECTORIES)[order],
        norm="mean_std",
    )
    plain = gigpo(EPISODE, RETURNS, ANCHORS, GROUPS, TRAJECTORIES, norm="mean_std")
    assert shuffled == pytest.approx(plain[order])


def test_padding_rows_get_zero_and_change_nothing():
    padded = gigpo(
        [*EPISODE, 10.0], [*RETURNS, 99.0], [*ANCHORS, "s0"], [0] * 8, [*TRAJECTORIES, 0], valid=[1] * 7 + [0]
    )
    assert padded == pytest.approx([*gigpo(EPISODE, RETURNS, ANCHORS, GROUPS, TRAJECTORIES), 0.0])


def test_observations_of_every_kind_have_a_canonical_key():
    assert anchor_key({"b": 1, "a": [1, 2]}) == anchor_key({"a": [1, 2], "b": 1})
    assert anchor_key(np.array([[1, 2]])) == anchor_key([[1, 2]]) != anchor_key([[2, 1]])
    assert anchor_key("room ") != anchor_key("room")


def test_similarity_compares_with_the_first_member_in_row_order():
    texts = ["aaaaaaaaaa", "aaaaaaaaab", "aaaaaaaabb"]
    assert anchor_clusters(texts, [0] * 3, similarity=0.9).tolist() == [0, 0, 1]
    assert anchor_clusters(texts[::-1], [0] * 3, similarity=0.9).tolist() == [0, 0, 1]  # other pair: order dependent
    assert anchor_clusters(texts, [0] * 3).tolist() == [0, 1, 2]
    assert anchor_clusters(texts, [0, 1, 0], similarity=0.5).tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="similarity"):
        anchor_clusters(texts, [0] * 3, similarity=1.5)
