"""When the policy decides to stop, a baseline per turn index is biased and the ones here are not.

One decision: stop (return 0), or pay 0.1 to continue and earn 1 at the second turn. All 2^n outcomes of a group are
enumerated, so that every expectation is exact. Only those who continue have a second turn: a mean over them, subtracted
from the reward there, takes away exactly what continuing is worth.
"""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from advantages.chains import after

from rl_agents.advantages import discounted_returns, grpo, reward_to_go, rloo, step_gae
from rl_agents.algorithms.gigpo import anchor_clusters, gigpo

COST, PRIZE, MEMBERS = 0.1, 1.0, 3
dr_grpo = partial(grpo, std="none")


def rows_of(choices):
    """Step rows (reward, trajectory, step) of a group; choice True continues."""
    rows = []
    for member, goes_on in enumerate(choices):
        rows.append((-COST if goes_on else 0.0, member, 0))
        if goes_on:
            rows.append((PRIZE, member, 1))
    rewards, trajectories, steps = (np.array(column) for column in zip(*rows, strict=True))
    return rewards, trajectories.astype(int), steps.astype(int)


def expected_gradient(credit, p, members=MEMBERS):
    """E[1/n Σ_i A_i·d log π(choice_i)/dθ], θ the log-odds of continuing."""
    total = 0.0
    for choices in itertools.product([False, True], repeat=members):
        probability = math.prod(p if goes_on else 1 - p for goes_on in choices)
        scores = np.array([1 - p if goes_on else -p for goes_on in choices])
        total += probability * float(np.mean(credit(choices, p) * scores))
    return total


def true_gradient(p):
    return (PRIZE - COST) * p * (1 - p)


def first_turns(advantages, steps):
    return np.asarray(advantages)[steps == 0]


def to_go(rewards, trajectories, steps):
    return discounted_returns(rewards, after(trajectories, steps), np.zeros(len(rewards)), gamma=1.0)


def per_turn_index(std):
    def credit(choices, _):
        rewards, trajectories, steps = rows_of(choices)
        return first_turns(to_go(grpo(rewards, steps, std=std), trajectories, steps), steps)

    return credit


def on_returns(estimate):
    def credit(choices, _):
        rewards, trajectories, _ = rows_of(choices)
        returns = np.bincount(trajectories, weights=rewards)
        return estimate(returns, np.zeros(returns.size, dtype=int))

    return credit


def step_credit(choices, p):
    rewards, trajectories, steps = rows_of(choices)
    values = np.where(steps == 0, p * (PRIZE - COST), PRIZE)
    options = {"gamma": 1.0, "lam": 1.0, "final_values": np.zeros(steps.size)}
    return first_turns(step_gae(rewards, values, after(trajectories, steps), **options).advantages, steps)


def anchored(choices, _):
    rewards, trajectories, steps = rows_of(choices)
    step_returns = to_go(rewards, trajectories, steps)
    episode = dr_grpo(step_returns[steps == 0], np.zeros(len(choices), dtype=int))[trajectories]
    clusters = anchor_clusters(["door" if step == 0 else "hall" for step in steps], np.zeros(steps.size, dtype=int))
    return first_turns(gigpo(episode, step_returns, clusters, omega=1.0, std="none"), steps)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_a_baseline_per_turn_index_pushes_the_stop_decision_the_wrong_way(p):
    assert true_gradient(p) > 0
    assert expected_gradient(per_turn_index("none"), p) == pytest.approx(-COST * p * (1 - p) * 2 / 3)
    assert expected_gradient(per_turn_index("sample"), p) < 0


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_credit_from_trajectory_returns_and_step_values_is_unbiased(p):
    shrink = (MEMBERS - 1) / MEMBERS  # a mean that contains the member itself
    assert expected_gradient(on_returns(rloo), p) == pytest.approx(true_gradient(p))
    assert expected_gradient(on_returns(dr_grpo), p) == pytest.approx(shrink * true_gradient(p))
    assert expected_gradient(step_credit, p) == pytest.approx(true_gradient(p))
    assert expected_gradient(anchored, p) == pytest.approx(2 * shrink * true_gradient(p))
    assert expected_gradient(on_returns(grpo), p) > 0


def test_counting_step_rows_distorts_the_group_mean_by_length():
    rewards, trajectories, steps = rows_of([True, False, False])
    returns = np.bincount(trajectories, weights=rewards)
    assert dr_grpo(returns, [0, 0, 0]) == pytest.approx([0.6, -0.3, -0.3])
    by_row = dr_grpo(returns[trajectories], np.zeros(steps.size, dtype=int))
    assert first_turns(by_row, steps) == pytest.approx([0.45, -0.45, -0.45])


def test_the_first_action_is_credited_for_what_follows_the_observation():
    credited = reward_to_go([[-COST, 0.0, PRIZE]], [[1, 0, 1]], [-1], gamma=1.0)[0]
    assert credited == pytest.approx([PRIZE - COST, 0.0, PRIZE])
