"""T3's truncation rules (section 17)."""

import itertools

import pytest
from rollout.stalls import fires_at

from rl_agents.envs.preference_estimation.env import progresses


@pytest.mark.parametrize(("mode", "turn"), [("consecutive", 6), ("cumulative", 5)])
def test_circuit_decoding_example(mode, turn):
    progress = [decrease > 0 for decrease in [6, 0, 2, 0, 0, 0]]
    assert fires_at(progress, 3, mode) == turn


def test_situation_puzzle_example():
    progress = [reply != "U" for reply in ["U", "U", "No", "U", "U", "U", "U", "U"]]
    assert fires_at(progress, 5) == 8


def test_guess_numbers_stops_at_the_first_inconsistent_guess():
    consistent = {"231", "312"}  # after the guess 123 was answered 0A3B
    assert fires_at([guess in consistent for guess in ("231", "312")], 1) is None
    assert fires_at([guess in consistent for guess in ("213",)], 1) == 1


def test_preference_estimation_example():
    cosines = [None, 0.70, 0.72, 0.71, 0.69]
    assert fires_at([progresses(*pair) for pair in itertools.pairwise(cosines)], 2) == 4


def test_equal_estimates_are_stalls_and_the_first_is_progress():
    assert not progresses(0.5, 0.5) and not progresses(0.5, 0.0)
    assert progresses(None, 0.0) and progresses(0.0, 0.2)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_fires_after_exactly_k_stalls_even_before_any_progress(k):
    assert fires_at([False] * (k - 1), k) is None
    assert fires_at([False] * k, k) == k
    assert fires_at([False] * (k - 1) + [True] + [False] * k, k) == 2 * k
    assert fires_at([False] * (k - 1) + [True] + [False], k, "cumulative") == k + 1


def test_minimum_turns_delay_but_do_not_forget():
    assert fires_at([False] * 9, 2, minimum_turns=6) == 6
    assert fires_at([False] * 5 + [True] + [False] * 3, 2, minimum_turns=6) == 8
