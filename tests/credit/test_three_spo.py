"""3SPO scores, counts, rewards and sibling advantages (section 13)."""

import math

import numpy as np
import pytest

from rl_agents.credit.group import grpo
from rl_agents.credit.three_spo import (
    annealing,
    novelty,
    novelty_weight,
    rollout_count,
    state_score,
    step_reward,
)


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
    result = state_score(total, wins, depth, alpha=alpha)
    assert float(result.score) == pytest.approx(score, rel=1e-4, abs=1e-30)
    assert int(rollout_count(result.score, result.open)) == count


@pytest.mark.parametrize(
    ("total", "wins", "is_open"),
    [(0, 0, True), (9, 0, True), (10, 0, False), (10, 1, True), (11, 1, False), (20, 2, False), (12, 2, True)],
)
def test_gate_closes_only_with_many_failures_and_a_low_rate(total, wins, is_open):
    result = state_score(total, wins, 3)
    assert bool(result.open) is is_open
    assert (float(result.score) > 0) is is_open


def test_a_gate_in_the_count_alone_leaves_the_score_as_it_is():
    """exp(-50·ln 7·p) by hand; a closed state has n = 0 either way."""
    total, wins = [10, 11, 10, 0], [0, 1, 1, 0]
    paper, ours = (state_score(total, wins, 7, gate=gate) for gate in ("score", "count"))
    assert paper.score == pytest.approx([0.0, 0.0, 5.94991e-5, 1.0], rel=1e-4)
    assert ours.score == pytest.approx([1.0, 7 ** (-50 / 11), 5.94991e-5, 1.0], rel=1e-4)
    assert paper.open.tolist() == ours.open.tolist() == [False, False, True, True]
    for found in (paper, ours):
        assert rollout_count(found.score, found.open).tolist() == [0, 0, 1, 8]


def test_at_the_first_depth_the_score_is_zero_or_one():
    result = state_score([0, 10, 10, 12], [0, 10, 0, 2], 1)
    assert result.score.tolist() == [1.0, 1.0, 0.0, 1.0]
    assert float(annealing(1)) == 0.0
    assert float(annealing(math.e, alpha=3.0)) == pytest.approx(3.0)


def test_mastered_state_walks_through_where_float32_would_truncate():
    result = state_score(1000, 1000, 9)
    assert 0 < float(result.score) < 1e-45  # below the smallest float32
    assert np.float32(result.score) == 0.0
    assert int(rollout_count(np.float32(result.score), result.open)) == 1


def test_published_alpha_allows_only_zero_one_or_all_rollouts():
    total, wins, depth = (grid.ravel() for grid in np.meshgrid(np.arange(61), np.arange(61), np.arange(2, 51)))
    possible = wins <= total
    args = total[possible], wins[possible], depth[possible]
    result = state_score(*args)
    assert set(rollout_count(result.score, result.open).tolist()) == {0, 1, 8}
    graded = state_score(*args, alpha=1.0)
    assert set(rollout_count(graded.score, graded.open).tolist()) == set(range(9))


def test_impossible_statistics_are_errors():
    with pytest.raises(ValueError, match="between 0 and total"):
        state_score(1, 2, 3)
    with pytest.raises(ValueError, match="counts from 1"):
        state_score(1, 1, 0)


def test_novelty_weight():
    assert novelty_weight([0, 7, 10]) == pytest.approx([0.5, 0.248293, 0.183940], abs=1e-6)
    assert float(novelty_weight(math.log(2) / 0.1)) == pytest.approx(0.25)
    assert novelty_weight([0, 50], fixed=0.25).tolist() == [0.25, 0.25]


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("changed", {"next_total": 5}, 1.0),
        ("unseen", {"next_total": 5}, 0.0),
        ("unseen", {"next_total": 0}, 1.0),
        ("first_in_trajectory", {"path": ["a", "b"]}, 0.0),
        ("first_in_trajectory", {"path": ["a"]}, 1.0),
        ("zero", {}, 0.0),
    ],
)
def test_readings_of_novelty(mode, options, expected):
    assert novelty("a", "b", mode=mode, **options) == expected


@pytest.mark.parametrize("mode", ["changed", "first_in_trajectory"])
def test_a_loop_to_the_same_state_is_not_novel(mode):
    assert novelty("a", "a", mode=mode, path=["a"]) == 0.0
    with pytest.raises(ValueError, match="unknown novelty 'new'"):
        novelty("a", "b", mode="new")


def test_step_rewards_and_sibling_advantages_of_the_reference_example():
    weight = novelty_weight(10)
    rewards = step_reward([1, 1, 1], 0.3 - np.array([0.2, 0.6, 0.2]), [0, 0, 0], weight)
    assert rewards == pytest.approx([0.215546, 0.089122, 0.215546], abs=1e-6)
    assert grpo(rewards, [0, 0, 0]) == pytest.approx([0.577342, -1.154685, 0.577342], abs=1e-5)
    assert grpo(rewards, [0, 0, 0], std="none") == pytest.approx([0.042141, -0.084283, 0.042141], abs=1e-6)


def test_at_the_first_visit_scores_have_no_weight():
    for next_scores in ([1, 1, 1, 0], [1, 1, 1, 1]):
        rewards = step_reward([1, 1, 0, 1], 1.0 - np.array(next_scores), [0, 0, 0, 1], novelty_weight(0))
        assert rewards == pytest.approx([0.5, 0.5, 0.0, 1.0])


def test_only_child_and_identical_siblings_get_zero():
    assert grpo([0.7], [0]).tolist() == [0.0]
    assert grpo([0.1 + 0.2, 0.3, 0.3], [0, 0, 0]).tolist() == [0.0] * 3


def test_siblings_of_different_states_are_not_compared():
    advantages = grpo([1.0, 5.0, 0.0, 5.0], [0, 1, 0, 1], std="none")
    assert advantages.tolist() == [0.5, 0.0, -0.5, 0.0]
