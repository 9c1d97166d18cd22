"""VSPO (section 14)."""

import numpy as np
import pytest

from rl_agents.algorithms import vspo as module
from rl_agents.algorithms.vspo import smoothing_weight, softmax, value_scores


def vspo(rewards, generator, *, mode="value", temperature=0.1, alpha=2.0, clip=True):
    return module.vspo(rewards, generator, mode=mode, temperature=temperature, alpha=alpha, clip=clip)


TASKS = [[1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0] * 5]
REWARDS = [[1, 0, 0, 0, 0], [1, 1, 1, 1, 0], [0] * 5, [1] * 5, [1, 1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.1, [0.391175, 0.149778, 0.459048]), (1.0, [0.341928, 0.310629, 0.347443])]
)
def test_draw_probabilities(temperature, expected):
    assert softmax([0.128, 0.032, 0.144], temperature) == pytest.approx(expected, abs=1e-6)
    selection = vspo(REWARDS, np.random.default_rng(0), temperature=temperature)
    assert selection.probabilities[[0, 1, 4]] == pytest.approx(expected, abs=1e-6)
    assert selection.probabilities[[2, 3]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("scale", "span", "expected"),
    [
        ("paper", 1.0, [0.474, 0.182, 0.344]),
        ("paper", 4.1, [1.0, 0.0, 0.0]),
        ("span", 1.0, [0.474, 0.182, 0.344]),
        ("span", 4.1, [0.474, 0.182, 0.344]),
    ],
)
def test_a_scale_free_value_draws_the_same_for_every_span_of_rewards(scale, span, expected):
    """Three tasks of five rollouts and one without variance, rewards times 4.1 (PRS's long form spans -1 to 3.1)."""
    rewards = [[span * reward - 1 for reward in task] for task in TASKS]
    chosen = module.vspo(
        rewards, np.random.default_rng(0), mode="value", temperature=0.1, alpha=2.0, clip=True, scale=scale
    )
    assert chosen.probabilities[:3] == pytest.approx(expected, abs=1e-3)


def test_softmax_does_not_overflow():
    assert softmax([1e6, 0.0], 1e-3).tolist() == [1.0, 0.0]


def test_smoothing_weights_and_their_share_per_copy():
    counts = np.array([1, 2, 3, 10])
    weights = smoothing_weight(counts, 2.0, clip=True)
    assert weights == pytest.approx([1, 1.5, 1.666667, 1.9], abs=1e-6)
    assert weights / counts == pytest.approx([1, 0.75, 0.555556, 0.19], abs=1e-6)
    assert smoothing_weight([0, 1, 5], 2.0, clip=False).tolist() == [0.0, 1.0, 5.0]
    assert smoothing_weight([0], 4.0, clip=True).tolist() == [0.0]


@pytest.mark.parametrize("mode", ["value", "random"])
def test_as_many_draws_as_dropped_tasks(mode):
    for seed in range(20):
        selection = vspo(REWARDS, np.random.default_rng(seed), mode=mode)
        assert selection.counts.sum() == 5
        assert selection.counts[[2, 3]].tolist() == [0, 0]
        assert (selection.counts[[0, 1, 4]] >= 1).all()
        assert selection.weights == pytest.approx(smoothing_weight(selection.counts, 2.0, clip=True))


def test_draws_follow_the_probabilities():
    generator = np.random.default_rng(5)
    extra = sum(vspo(REWARDS, generator).counts - [1, 1, 0, 0, 1] for _ in range(1000)) / 2000
    assert extra[[0, 1, 4]] == pytest.approx([0.391175, 0.149778, 0.459048], abs=0.05)
    extra = sum(vspo(REWARDS, generator, mode="random").counts - [1, 1, 0, 0, 1] for _ in range(1000)) / 2000
    assert extra[[0, 1, 4]] == pytest.approx([1 / 3] * 3, abs=0.05)


def test_one_survivor_takes_all_draws():
    selection = vspo([[1, 0]] + [[0, 0]] * 9, np.random.default_rng(0))
    assert selection.counts.tolist() == [10] + [0] * 9
    assert selection.weights[0] == pytest.approx(1.9)
    assert vspo([[1, 0]] + [[0, 0]] * 9, np.random.default_rng(0), clip=False).weights[0] == 10.0


def test_a_task_with_one_rollout_is_dropped():
    assert vspo([[1.0], [1.0, 0.0]], np.random.default_rng(0)).counts.tolist() == [0, 2]


@pytest.mark.parametrize("rewards", [[[0, 0], [1, 1]], [[0, 1], [1, 0]]])
def test_all_or_none_uniform_is_plain_grpo(rewards):
    selection = vspo(rewards, np.random.default_rng(0))
    assert selection.counts.tolist() == [1, 1]
    assert selection.weights.tolist() == [1.0, 1.0]


def test_mode_none_leaves_the_batch_and_the_generator_alone():
    generator = np.random.default_rng(3)
    assert vspo(REWARDS, generator, mode="none").weights.tolist() == [1.0] * 5
    assert generator.random() == np.random.default_rng(3).random()


def test_variance_threshold_is_strict_below(monkeypatch):
    # The population variance of [0, s] is (s/2)², so that s = 2e-3 lies at 1e-6.
    assert value_scores([[0.0, 2.001e-3], [0.0, 1.999e-3]]).kept.tolist() == [True, False]
    monkeypatch.setattr(module, "MINIMUM_VARIANCE", float(np.var([0.0, 2e-3])))
    assert value_scores([[0.0, 2e-3]]).kept.tolist() == [True]


def test_best_reward_counts_dropped_tasks_too():
    assert value_scores([[1, 0], [3, 3]]).values[0] == pytest.approx((3 - 0.5) * 0.25)
    with pytest.raises(ValueError, match="at least one task"):
        value_scores([])
