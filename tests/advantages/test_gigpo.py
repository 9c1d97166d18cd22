"""GiGPO (section 10)."""

import numpy as np
import pytest
from advantages.chains import after

from rl_agents.advantages import discounted_returns
from rl_agents.algorithms.gigpo import anchor_clusters, gigpo

ANCHORS = ["s0", "s1", "s2", "s0", "s1", "s1", "s3"]
TRAJECTORIES, STEPS = [0, 0, 0, 1, 1, 1, 1], [0, 1, 2, 0, 1, 2, 3]
GROUPS = [0] * 7
RETURNS = discounted_returns([0, 0, 10, 0, 0, 0, 0], after(TRAJECTORIES, STEPS), [0.0] * 7, gamma=0.95)
CLUSTERS = anchor_clusters(ANCHORS, GROUPS)


def step_term(returns, clusters, std="none"):
    return gigpo(np.zeros(len(returns)), returns, clusters, omega=1.0, std=std)


def test_omega_zero_is_the_episode_advantage():
    episode = np.array([5.0] * 3 + [-5.0] * 4)
    assert gigpo(episode, RETURNS, CLUSTERS, omega=0.0, std="none").tolist() == episode.tolist()


def test_clusters_never_cross_groups_and_count_repeated_visits():
    assert anchor_clusters(["x", "x", "x"], [0, 1, 0]).tolist() == [0, 1, 0]
    repeated = anchor_clusters(["x", "x"], [0, 0])
    assert step_term([1.0, 0.0], repeated).tolist() == [0.5, -0.5]


def test_text_is_compared_exactly():
    assert anchor_clusters(["room", "room ", "room"], [0] * 3).tolist() == [0, 1, 0]


def test_cluster_of_one_gets_zero():
    assert step_term([3.0], [0], "sample").tolist() == [0.0]


def test_failed_group_is_zero_unless_penalties_differ():
    zeros = [0.0] * 7
    assert step_term(zeros, CLUSTERS, "sample").tolist() == zeros
    penalized = [-0.1, 0, 0, 0, 0, 0, 0]
    assert step_term(penalized, CLUSTERS) == pytest.approx([-0.05, 0, 0, 0.05, 0, 0, 0])


def test_similarity_compares_with_the_first_member_in_row_order():
    texts = ["aaaaaaaaaa", "aaaaaaaaab", "aaaaaaaabb"]
    assert anchor_clusters(texts, [0] * 3, similarity=0.9).tolist() == [0, 0, 1]
    assert anchor_clusters(texts[::-1], [0] * 3, similarity=0.9).tolist() == [0, 0, 1]  # other pair: order dependent
    assert anchor_clusters(texts, [0] * 3).tolist() == [0, 1, 2]
    assert anchor_clusters(texts, [0, 1, 0], similarity=0.5).tolist() == [0, 1, 0]
