"""What a mutation of credit's code showed to be untested: double precision everywhere, and the exact boundaries."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rl_agents.advantages import (
    EPSILON,
    discounted_returns,
    grpo,
    leave_one_out,
    masked_mean,
    masked_var,
    masked_whiten,
    reward_to_go,
    rloo,
    step_gae,
    token_gae,
    whiten_by_length,
    whiten_rows,
    whiten_steps,
)
from rl_agents.algorithms.hgpo import hgpo
from rl_agents.algorithms.three_spo import gate, novelty_weight, state_score, step_reward
from rl_agents.algorithms.vspo import MINIMUM_VARIANCE, smoothing_weight, softmax, value_scores

ONE, ZERO = np.zeros(6, dtype=int), np.zeros(1)
STEPS = np.arange(6)
NEXT, END = np.array([1, 2, 3, 4, 5, -1]), [-1]
PARTS: dict[str, Callable[[np.ndarray], Any]] = {
    "grpo": lambda x: grpo(x, ONE),
    "rloo": lambda x: rloo(x, ONE),
    "leave_one_out": lambda x: leave_one_out(x, ONE),
    "hgpo": lambda x: hgpo(x, list("ababab"), ONE, STEPS - 1, history=1, alpha=1.0, std="population"),
    "token rewards": lambda x: token_gae([x], [x / 2], [STEPS < 9], END, gamma=0.9, lam=0.9, final_values=ZERO),
    "token final": lambda x: token_gae([x], [x], [STEPS < 9], END, gamma=0.9, lam=0.9, final_values=x[:1]),
    "step": lambda x: step_gae(x, x / 2, NEXT, gamma=0.9, lam=0.9, final_values=x),
    "step values": lambda x: step_gae(STEPS / 7, x, NEXT, gamma=0.9, lam=0.9, final_values=STEPS),
    "returns": lambda x: discounted_returns(x, NEXT, abs(x), gamma=0.9),
    "to go": lambda x: reward_to_go([x], [STEPS < 9], END, gamma=0.9),
    "whiten_steps": whiten_steps,
    "mean": lambda x: masked_mean(x, STEPS < 5),
    "variance": lambda x: masked_var(x, STEPS < 5),
    "whiten": lambda x: masked_whiten(x, STEPS < 5),
    "by length": lambda x: whiten_by_length(x, STEPS + 1),
    "values": lambda x: value_scores([x, x[:3]]),
    "softmax": lambda x: softmax(x, 0.3),
    "smoothing": lambda x: smoothing_weight(16 * abs(x), 2.0, clip=True),
    "novelty weight": lambda x: novelty_weight(abs(x)),
    "step reward": lambda x: step_reward(x, x / 2, abs(x), abs(x) / 8),
}


@pytest.mark.parametrize("name", PARTS)
def test_single_precision_is_computed_in_double(name: str) -> None:
    single = np.random.default_rng(0).normal(size=6).astype(np.float32)
    found, expected = PARTS[name](single), PARTS[name](single.astype(np.float64))
    for mine, other in zip(np.atleast_1d(found), np.atleast_1d(expected), strict=True):
        np.testing.assert_array_equal(np.asarray(mine, dtype=object), np.asarray(other, dtype=object))


def test_leave_one_out_divides_from_a_group_of_three_on() -> None:
    deviation = [np.sqrt(2.0), 1.5 * np.sqrt(2.0), np.sqrt(0.5)]
    expected = np.array([-2.0, -0.5, 2.5]) / (np.array(deviation) + EPSILON)
    assert leave_one_out([0.0, 1.0, 3.0], [7, 7, 7]) == pytest.approx(expected, abs=1e-9)


def test_one_vote_of_hgpo_counts_as_it_is() -> None:
    options: dict[str, Any] = {"history": 0, "std": "none"}
    for alpha in (0.0, -1.0):
        advantages = hgpo([1.0, 0.0], ["s", "s"], [0, 0], [-1, -1], alpha=alpha, **options)
        assert advantages.tolist() == [0.5, -0.5]


def test_an_empty_row_has_no_tokens() -> None:
    found = token_gae([[]], [[]], [[]], [-1], gamma=1.0, lam=1.0, final_values=[0.0])
    assert (found.advantages[0].size, found.returns[0].size) == (0, 0)


def test_the_masked_mean_has_its_epsilon_below() -> None:
    assert masked_mean([1e8], [1]) == 1e8 / (1 + 1e-8) < 1e8


def test_three_rows_are_whitened_apart() -> None:
    rows = whiten_rows([np.array([1.0]), np.array([2.0, 3.0]), np.array([4.0])], [[1], [1, 1], [1]])
    assert [row.size for row in rows] == [1, 2, 1]


def test_values_come_with_their_variances_and_who_stays() -> None:
    just, under = np.sqrt(MINIMUM_VARIANCE), 0.99 * np.sqrt(MINIMUM_VARIANCE)
    values = value_scores([[0.0, 1.0], [0.0, 2 * just], [0.0, 2 * under], [1.0, 1.0]])
    assert values.variances[:1] == pytest.approx([0.25])
    assert values.kept.tolist() == [True, True, False, False]


def test_alpha_is_50_as_published() -> None:
    assert float(state_score(1 / 9, 2)) == float(state_score(1 / 9, 2, alpha=50.0)) > 0.0
    assert bool(gate(20, 1)) == bool(gate(20, 1, xi=10.0, zeta=0.1)) is False
