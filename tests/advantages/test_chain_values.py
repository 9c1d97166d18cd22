"""Values of chains against algebra."""

import numpy as np
import pytest

from rl_agents.advantages import chain_values, values_within


def test_values_by_hand() -> None:
    """0 -> 1 twice of four steps, else lost; 1 won once of two: V = (.5·.5, .5) as the prior goes to 0, less with γ."""
    found = chain_values([4, 2], [0, 1], [0], [1], [2], gamma=1.0, prior=1e-9)
    assert found == pytest.approx([0.25, 0.5], abs=1e-5)
    assert chain_values([4, 2], [0, 1], [0], [1], [2], gamma=0.9, prior=1e-9) == pytest.approx([0.225, 0.5], abs=1e-5)


def test_the_prior_leads_to_the_average_state() -> None:
    """One state, one of four won: V = (1 + V)/(4 + 1) with V̄ = V."""
    assert chain_values([4], [1], [], [], [], gamma=1.0, prior=1.0) == pytest.approx([0.25], abs=1e-4)


def test_a_target_without_steps_is_as_good_as_its_parent() -> None:
    """V = (1 + V)/2 without a prior."""
    assert chain_values([2], [1], [0], [-1], [1], gamma=1.0, prior=1e-9) == pytest.approx([1.0], abs=1e-3)


def test_chains_side_by_side_do_not_touch() -> None:
    alone = [chain_values([3, 2], [0, wins], [0], [1], [3], gamma=0.9, prior=1.0) for wins in (2, 0)]
    both = chain_values(
        [3, 2, 3, 2], [0, 2, 0, 0], [0, 2], [1, 3], [3, 3], gamma=0.9, prior=1.0, chain=[0, 0, 1, 1]
    )  # fmt: skip
    assert both == pytest.approx(np.concatenate(alone), abs=1e-4)
    assert (both[2:] == 0).all() and (both[:2] > 0.5).all()


def test_values_within_the_turns_left() -> None:
    """Half of the steps at a lead back to a, half to b, where one of two is solved: what is put off counts less."""
    found = values_within([4, 2], [0, 1], [0, 0], [0, 1], [2, 2], turns=3, gamma=1.0, prior=1e-9)
    assert found == pytest.approx(np.array([[0.0, 0.0], [0.0, 0.5], [0.25, 0.5], [0.375, 0.5]]), abs=1e-6)
    endless = chain_values([4, 2], [0, 1], [0, 0], [0, 1], [2, 2], gamma=1.0, prior=1e-9)
    assert endless == pytest.approx([0.5, 0.5], abs=1e-3), "without a limit putting off costs nothing"


def test_an_average_state_is_valued_within_its_turns_too() -> None:
    # V_1 = 1/2 (one solved step and one prior step), V_2 = (1 + 1/2)/2.
    assert values_within([1], [1], [], [], [], turns=2, gamma=1.0, prior=1.0)[:, 0] == pytest.approx([0.0, 0.5, 0.75])
