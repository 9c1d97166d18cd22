"""HGPO (section 11)."""

import itertools

import numpy as np
import pytest
from advantages.chains import after, before

from rl_agents.advantages import discounted_returns, grpo
from rl_agents.algorithms import hgpo as module
from rl_agents.algorithms.gigpo import anchor_clusters
from rl_agents.algorithms.hgpo import context_clusters, depth_advantages

ANCHORS = ["s0", "s1", "s2", "s0", "s1", "s1", "s3", "s0", "s1", "s2"]
TRAJECTORIES, STEPS = [0] * 3 + [1] * 4 + [2] * 3, [0, 1, 2, 0, 1, 2, 3, 0, 1, 2]
GROUPS = [0] * 10
RETURNS = discounted_returns([0, 0, 10] + [0] * 7, after(TRAJECTORIES, STEPS), [0.0] * 10, gamma=0.95)
ROWS = (ANCHORS, GROUPS, before(TRAJECTORIES, STEPS))


def hgpo(*rows, history=2, alpha=1.0, std="population", base=None):
    """The recipe's defaults, on ALFWorld."""
    options = {"history": history, "alpha": alpha, "std": std, "base": base}
    return module.hgpo(*rows, **options)


def test_without_history_it_is_the_step_term_of_gigpo_with_population_deviation():
    step = grpo(RETURNS, anchor_clusters(ANCHORS, GROUPS), std="population")
    assert hgpo(RETURNS, *ROWS, history=0) == pytest.approx(step)


def test_contexts_are_nested_and_absent_near_the_start():
    clusters = [context_clusters(*ROWS, depth) for depth in range(3)]
    assert (clusters[2] >= 0).sum() == 4
    for shallow, deep in itertools.pairwise(clusters):
        for cluster in set(deep[deep >= 0]):
            assert len(set(shallow[deep == cluster])) == 1
    assert clusters[1][[0, 3, 7]].tolist() == [-1, -1, -1]


def test_alpha_zero_weighs_depths_alike():
    depths = [depth_advantages(RETURNS, context_clusters(*ROWS, depth), "population") for depth in range(2)]
    row = 1
    assert hgpo(RETURNS, *ROWS, history=1, alpha=0.0)[row] == pytest.approx((depths[0][row] + depths[1][row]) / 2)


def test_zero_advantages_leave_the_vote():
    # At depth 1 the row is average (advantage 0), so that only depth 0 counts, with full weight.
    anchors, trajectories, steps = ["p", "x", "p", "x", "q", "x"], [0, 0, 1, 1, 2, 2], [0, 1] * 3
    advantages = hgpo([0, 1.0, 0, 1.0, 0, 0.0], anchors, [0] * 6, before(trajectories, steps), history=1, std="none")
    assert advantages[1] == pytest.approx(1 / 3)


@pytest.mark.parametrize("scale", [1.0, 0.1, 1e3])
def test_an_average_return_does_not_vote_by_rounding(scale):
    # 0.1, 0.2 and 0.3: their mean in floats is 0.20000000000000004, so that A_1 of row 3 is -2.8e-17 or 0.
    anchors, trajectories, steps = ["p", "x"] * 3 + ["q", "x"], [0, 0, 1, 1, 2, 2, 3, 3], [0, 1] * 4
    returns = scale * np.array([0, 0.1, 0, 0.2, 0, 0.3, 0, 0.9])
    deep = depth_advantages(returns, context_clusters(anchors, [0] * 8, before(trajectories, steps), 1), "population")
    assert deep[3] == 0.0
    for std in ("none", "population"):
        shallow = grpo(returns[1::2], [0] * 4, std=std)[1]
        advantages = hgpo(returns, anchors, [0] * 8, before(trajectories, steps), history=1, std=std)
        assert advantages[3] == pytest.approx(shallow), "depth 0 alone votes"


def test_base_item_joins_with_weight_one():
    base = np.full(10, 2.0)
    advantages = hgpo(RETURNS, *ROWS, history=1, base=base)
    assert advantages[6] == pytest.approx(2.0)  # in no shared cluster: the base alone
    assert advantages[0] == pytest.approx((1 * 1.414213 + 1 * 2.0) / 2, abs=1e-5)


def test_row_without_company_and_group_of_one_get_zero():
    assert hgpo(RETURNS, *ROWS)[6] == 0.0
    assert hgpo([1.0], ["x"], [0], [-1]).tolist() == [0.0]


def test_groups_do_not_mix():
    split = hgpo([1.0, 0.0, 9.0], ["x"] * 3, [0, 0, 1], [-1, -1, -1], std="none")
    assert split.tolist() == [0.5, -0.5, 0.0]
