"""Masked statistics (section 1.2) and the order of steps."""

import numpy as np
import pytest

from rl_agents.advantages import (
    backward,
    masked_mean,
    masked_var,
    masked_whiten,
    whiten_by_length,
    whiten_rows,
    whiten_steps,
)

NAN = float("nan")


def test_masked_mean_and_variance_ignore_what_is_masked():
    assert masked_mean([1.0, 3.0, NAN], [1, 1, 0]) == pytest.approx(2.0, abs=1e-7)
    assert masked_var([1.0, 3.0, NAN], [1, 1, 0]) == pytest.approx(2.0, abs=1e-7)
    assert masked_mean([NAN], [0]) == 0.0


@pytest.mark.parametrize("mask", [[0, 0], [1, 0]])
def test_variance_of_fewer_than_two_values_is_an_error(mask):
    with pytest.raises(ValueError, match=f"got {sum(mask)}"):
        masked_var([1.0, 2.0], mask)
    assert masked_whiten([1.0, 2.0], mask).tolist() == [0.0, 0.0], "a value alone is the mean"


def test_epsilon_is_added_to_the_variance_of_tokens_and_to_the_deviation_of_steps():
    x = [1e-4, -1e-4]
    variance = 2e-8
    assert masked_whiten(x, [1, 1])[0] == pytest.approx(1e-4 / np.sqrt(variance + 1e-8))
    assert whiten_steps(x)[0] == pytest.approx(1e-4 / (np.sqrt(variance) + 1e-8))


def test_what_differs_by_a_ten_thousandth_is_whitened_to_zero():
    for whiten in (whiten_steps, lambda x: masked_whiten(x, [1, 1, 1])):
        assert whiten([0.0, 1e-5, 5e-5]).tolist() == [0.0] * 3
        assert whiten([1e6, 1e6 + 1, 1e6 + 2]) == pytest.approx([-1.0, 0.0, 1.0], abs=0.02)


def test_rows_and_steps_are_whitened_token_by_token():
    rows = [np.array([2.0, 2.0, NAN]), np.array([-1.0])]
    first, second = whiten_rows(rows, [[1, 1, 0], [1]])
    expected = masked_whiten([2.0, 2.0, -1.0], [1, 1, 1])
    assert [*first, *second] == pytest.approx([*expected[:2], 0.0, expected[2]])
    assert whiten_by_length([2.0, -1.0], [2, 1]) == pytest.approx(expected[[0, 2]])


def test_backward_comes_to_every_entry_after_what_follows_it():
    assert backward([2, -1, 1, 1]) == [1, 2, 3, 0]
    assert backward([]) == []


@pytest.mark.parametrize("following", [[0], [1, 0], [-1, 2, 3, 1]])
def test_a_circle_is_an_error(following):
    with pytest.raises(ValueError, match="in a circle"):
        backward(following)
