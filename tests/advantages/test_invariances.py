"""The cross-algorithm matrix of section 18 for credit: permutation, shift, scale, equal rewards, padding, precision."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.advantages import grpo, leave_one_out, rloo, whiten_by_length
from rl_agents.algorithms.gigpo import anchor_clusters, gigpo
from rl_agents.algorithms.hgpo import hgpo
from rl_agents.algorithms.vspo import vspo


def baseline_rows(rewards, groups):
    return whiten_by_length(grpo(rewards, groups, std="none", singleton="raw"), np.ones(len(rewards), dtype=int))


def gigpo_rows(std):
    def estimate(rewards, groups):
        episode = grpo(rewards, groups, std=std, singleton="raw")
        clusters = anchor_clusters(["same"] * len(rewards), groups)
        return gigpo(episode, rewards, clusters, omega=1.0, std=std)

    return estimate


def hgpo_rows(rewards, groups):
    count = len(rewards)
    options = {"history": 2, "alpha": 1.0, "std": "population"}
    return hgpo(rewards, ["same"] * count, groups, [-1] * count, **options)


ESTIMATORS = {
    "grpo": partial(grpo, singleton="raw"),
    "dr_grpo": partial(grpo, std="none", singleton="raw"),
    "rloo": partial(rloo, singleton="raw"),
    "leave_one_out": leave_one_out,
    "gigpo mean": gigpo_rows("none"),
    "gigpo mean_std": gigpo_rows("sample"),
    "hgpo": hgpo_rows,
    "3spo": grpo,
    "reinforce++-baseline": baseline_rows,
}
UNSCALED = {"dr_grpo": 1.0, "rloo": 1.0, "gigpo mean": 1.0}


@st.composite
def batches(draw, minimum=2):
    """Rewards on a grid of 0.1, so that they are equal or clearly different, in groups of at least ``minimum``."""
    sizes = draw(st.lists(st.integers(minimum, 5), min_size=1, max_size=4))
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rewards = np.array(draw(st.lists(st.integers(-20, 20), min_size=groups.size, max_size=groups.size))) / 10
    order = np.array(draw(st.permutations(range(groups.size))))
    return rewards[order], groups[order]


@settings(max_examples=25, deadline=None)
@given(batches(minimum=1), st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", ESTIMATORS)
def test_permutation_of_rows(name, batch, stream):
    rewards, groups = batch
    if name == "reinforce++-baseline" and rewards.size < 2:
        return
    order = list(range(rewards.size))
    stream.shuffle(order)
    estimate = ESTIMATORS[name]
    assert estimate(rewards[order], groups[order]) == pytest.approx(estimate(rewards, groups)[order], abs=1e-7)


@settings(max_examples=25, deadline=None)
@given(batches(), st.integers(-50, 50))
@pytest.mark.parametrize("name", ESTIMATORS)
def test_constant_shift_of_rewards(name, batch, shift):
    rewards, groups = batch
    estimate = ESTIMATORS[name]
    assert estimate(rewards + shift, groups) == pytest.approx(estimate(rewards, groups), abs=1e-5)


@settings(max_examples=25, deadline=None)
@given(batches(), st.integers(2, 50))
@pytest.mark.parametrize("name", ESTIMATORS)
def test_scale_of_rewards(name, batch, scale):
    rewards, groups = batch
    estimate = ESTIMATORS[name]
    factor = scale if name in UNSCALED else 1.0
    if name == "leave_one_out":  # un-normalized where the others are equal, so only the sign is invariant
        scaled, plain = (np.sign(estimate(r, groups).round(9)) for r in (rewards * scale, rewards))
        assert scaled.tolist() == plain.tolist()
        return
    assert estimate(rewards * scale, groups) == pytest.approx(factor * estimate(rewards, groups), abs=1e-3)


@settings(max_examples=25, deadline=None)
@given(batches())
@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "gigpo mean", "gigpo mean_std", "3spo"])
def test_advantages_of_a_group_sum_to_zero(name, batch):
    rewards, groups = batch
    sums = np.bincount(groups, weights=ESTIMATORS[name](rewards, groups))
    assert sums == pytest.approx(np.zeros(sums.size), abs=1e-7)


@pytest.mark.parametrize("reward", [0.0, 0.3, -7.0, 1e6])
@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"reinforce++-baseline"}))
def test_equal_rewards_give_exactly_zero_also_in_float32(name, reward):
    rewards = np.full(4, reward)
    assert ESTIMATORS[name](rewards, [0] * 4).tolist() == [0.0] * 4
    noisy = np.array([reward, np.nextafter(np.float32(reward), np.float32(9e9)), reward, reward], dtype=np.float32)
    assert ESTIMATORS[name](noisy, [0] * 4).tolist() == [0.0] * 4


def test_equal_rewards_of_the_whole_batch_whiten_to_zero():
    assert baseline_rows([0.3] * 4, [0, 0, 1, 1]).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("grpo", 2.0),
        ("dr_grpo", 2.0),
        ("rloo", 2.0),
        ("leave_one_out", 0.0),
        ("gigpo mean_std", 2.0),
        ("hgpo", 0.0),
        ("3spo", 0.0),
    ],
)
def test_group_of_one_follows_its_convention(name, expected):
    advantages = ESTIMATORS[name](np.array([2.0, 1.0, 0.0]), np.array([0, 1, 1]))
    assert advantages[0] == expected
    assert advantages[1] > 0 > advantages[2]


def test_vspo_on_a_task_with_one_rollout():
    options = {"mode": "value", "temperature": 0.1, "alpha": 2.0, "clip": True}
    selection = vspo([[1.0], [1.0, 0.0]], np.random.default_rng(0), **options)
    assert selection.counts.tolist() == [0, 2]
