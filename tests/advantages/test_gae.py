"""Token and step GAE, discounted returns (sections 3, 10, 12 and 17)."""

import pytest
from advantages.chains import after

from rl_agents import advantages as formulas
from rl_agents.advantages import discounted_returns, masked_whiten, whiten_steps

NAN = float("nan")


def token_rows(rewards, values, masks, trajectories, steps, *, gamma=1.0, lam=1.0, final=None):
    final = [0.0] * len(rewards) if final is None else final
    return formulas.token_gae(
        rewards, values, masks, after(trajectories, steps), gamma=gamma, lam=lam, final_values=final
    )


def token_gae(rewards, values, mask, *, final=0.0, **options):
    """One trajectory of one row: its advantages and returns."""
    found = token_rows([rewards], [values], [mask], [0], [0], final=[final], **options)
    return found.advantages[0], found.returns[0]


def step_gae(rewards, values, trajectories, steps, *, gamma=0.99, lam=1.0, final=None):
    final = [0.0] * len(rewards) if final is None else final
    return formulas.step_gae(rewards, values, after(trajectories, steps), gamma=gamma, lam=lam, final_values=final)


def test_token_gae_reference_example():
    advantages, returns = token_gae([0, 0, 0, 1], [0.5, 0.6, 9.9, 0.8], [1, 1, 0, 1], gamma=0.9, lam=0.95)
    assert advantages == pytest.approx([0.288805, 0.291, 0.0, 0.2], abs=1e-9)
    assert returns == pytest.approx([0.788805, 0.891, 0.0, 1.0], abs=1e-9)
    whitened = masked_whiten(advantages, [1, 1, 0, 1])
    assert whitened == pytest.approx([0.556081, 0.598360, 0.0, -1.154440], abs=1e-5)


def test_observation_tokens_and_padding_are_transparent():
    dense, _ = token_gae([0, 0, 1], [0.2, 0.4, 0.1], [1, 1, 1], gamma=0.9, lam=0.8)
    sparse, _ = token_gae(
        [NAN, 0, 5, 5, 0, 1, 9], [NAN, 0.2, 7, 7, 0.4, 0.1, 7], [0, 1, 0, 0, 1, 1, 0], gamma=0.9, lam=0.8
    )
    assert sparse[[1, 4, 5]] == pytest.approx(dense)
    assert sparse[[0, 2, 3, 6]].tolist() == [0.0] * 4


def test_fully_masked_row_gives_zeros():
    advantages, returns = token_gae([1.0, 1.0], [1.0, 1.0], [0, 0])
    assert advantages.tolist() == returns.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(("value", "count"), [(1.0, 16), (-200.0, 16), (1e6, 16), (0.5, 1)])
def test_equal_advantages_are_whitened_to_zero(value, count):
    # The 1e-8 in the mean left -1.25e-7 of -200 in 16 steps, and a deviation of the same size.
    found = whiten_steps([value] * count), masked_whiten([value] * count, [1] * count)
    assert [own.tolist() for own in found] == [[0.0] * count] * 2


def test_credit_of_a_truncated_episode():
    values = [0.3, 0.5, 0.6, 0.5, 0.4, 0.3]

    def advantages(rewards, lam=1.0):
        steps = len(rewards)
        return step_gae(rewards, values[:steps], [0] * steps, range(steps), gamma=1.0, lam=lam).advantages

    assert advantages([0.0] * 6) == pytest.approx([-0.3, -0.5, -0.6, -0.5, -0.4, -0.3])
    expected = [-0.106657, -0.340730, -0.489700, -0.433, -0.37, -0.3]
    assert advantages([0.0] * 6, lam=0.9) == pytest.approx(expected, abs=1e-6)
    assert advantages([0.0, 0.0, 1.0]) == pytest.approx([0.7, 0.5, 0.4])
    assert advantages([0.0, 0.0, 0.0]) == pytest.approx([-0.3, -0.5, -0.6])


def test_discounted_returns_and_penalties_that_do_not_propagate():
    returns = discounted_returns([0, 0, 10, 0], [1, 2, -1, -1], [0.0] * 4, gamma=0.95)
    assert returns == pytest.approx([9.025, 9.5, 10.0, 0.0])
    penalized = discounted_returns([0, 0, 10, 0], [1, 2, -1, -1], [0, 0.1, 0, 0.1], gamma=0.95)
    assert penalized == pytest.approx([9.025, 9.4, 10.0, -0.1])
