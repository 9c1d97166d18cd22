"""The cross-algorithm matrix of section 18 for credit: equal rewards, also of one precision, and groups of one."""

from functools import partial

import numpy as np
import pytest

from rl_agents.advantages import grpo, leave_one_out, rloo, whiten_by_length
from rl_agents.algorithms.gigpo import anchor_clusters, gigpo
from rl_agents.algorithms.hgpo import hgpo


def baseline_rows(rewards, groups):
    return whiten_by_length(grpo(rewards, groups, std="none"), np.ones(len(rewards), dtype=int))


def gigpo_rows(std):
    def estimate(rewards, groups):
        episode = grpo(rewards, groups, std=std)
        clusters = anchor_clusters(["same"] * len(rewards), groups)
        return gigpo(episode, rewards, clusters, omega=1.0, std=std)

    return estimate


def hgpo_rows(rewards, groups):
    count = len(rewards)
    options = {"history": 2, "alpha": 1.0, "std": "population"}
    return hgpo(rewards, ["same"] * count, groups, [-1] * count, **options)


ESTIMATORS = {
    "grpo": grpo,
    "dr_grpo": partial(grpo, std="none"),
    "rloo": rloo,
    "leave_one_out": leave_one_out,
    "gigpo mean": gigpo_rows("none"),
    "gigpo mean_std": gigpo_rows("sample"),
    "hgpo": hgpo_rows,
    "3spo": grpo,
    "reinforce++-baseline": baseline_rows,
}


@pytest.mark.parametrize("reward", [0.0, 0.3, -7.0, 1e6])
@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"reinforce++-baseline"}))
def test_equal_rewards_give_exactly_zero_also_in_float32(name, reward):
    rewards = np.full(4, reward)
    assert ESTIMATORS[name](rewards, [0] * 4).tolist() == [0.0] * 4
    noisy = np.array([reward, np.nextafter(np.float32(reward), np.float32(9e9)), reward, reward], dtype=np.float32)
    assert ESTIMATORS[name](noisy, [0] * 4).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"reinforce++-baseline"}))
def test_a_group_of_one_has_no_advantage(name):
    advantages = ESTIMATORS[name](np.array([2.0, 1.0, 0.0]), np.array([0, 1, 1]))
    assert advantages[0] == 0.0
    assert advantages[1] > 0 > advantages[2]
