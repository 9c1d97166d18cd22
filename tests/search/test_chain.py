"""The chain of sampled steps: its values against algebra, and against the search's own preferences."""

from __future__ import annotations

import json

import numpy as np
import pytest
from search.drawn import settings_of

from rl_agents.algorithms.chain_search import ChainValues
from rl_agents.search.chain import StateChain
from rl_agents.search.states import Outcomes, allocation, step_rewards


def observe(chain: StateChain, key: str, children: list[str], ended: list[bool], solved: list[bool]) -> None:
    chain.observe(key, Outcomes(tuple(children), tuple(ended), tuple(solved)))


def walk(steps: int, gamma: float = 1.0) -> StateChain:
    """a -> b (half), a -> a (half); b ends, solved in three of four."""
    chain = StateChain(gamma, 100)
    for _ in range(steps):
        observe(chain, "a", ["a", "b"], [False, False], [False, False])
        observe(chain, "b", ["-"] * 4, [True] * 4, [True, True, True, False])
    return chain


def test_values_solve_the_chain() -> None:
    assert walk(20_000).values(["a", "b"]) == pytest.approx([0.75, 0.75], abs=1e-3)
    discounted = walk(20_000, gamma=0.9).values(["a", "b"])
    assert discounted == pytest.approx([0.9 * 0.5 * 0.75 / (1 - 0.9 * 0.5), 0.75], abs=1e-3)


def test_which_child_is_entered_does_not_matter() -> None:
    """A search that enters only the child that wins leaves the value where the policy's samples put it."""
    chain = StateChain(1.0, 100)
    for _ in range(500):
        observe(chain, "start", ["good", *["bad"] * 3], [False] * 4, [False] * 4)
        observe(chain, "good", ["-"], [True], [True])
    observe(chain, "bad", ["-"] * 50, [True] * 50, [False] * 50)
    start, bad = chain.values(["start", "bad"])
    assert start == pytest.approx(0.25, abs=0.02) and bad < 0.02


def test_unseen_states() -> None:
    chain = StateChain(1.0, 100)
    assert chain.values(["x"]).tolist() == [0.0] and chain.steps("x") == 0
    observe(chain, "a", ["-", "-"], [True, True], [True, False])
    assert chain.values(["x"], prior=0.3).tolist() == [0.3]
    assert chain.values(["x"])[0] == pytest.approx(0.5, abs=1e-3)
    assert chain.steps("a") == 2


def test_a_child_without_samples_is_as_good_as_its_parent() -> None:
    chain = StateChain(1.0, 100)
    observe(chain, "a", ["new", "-", "-"], [False, True, True], [False, True, False])
    assert chain.values(["a"])[0] == pytest.approx(0.5, abs=1e-3)


def test_each_child_without_samples_is_as_good_as_its_own_parent() -> None:
    chain = StateChain(1.0, 100)
    for _ in range(20_000):
        observe(chain, "good", ["new", "-", "-"], [False, True, True], [False, True, True])
        observe(chain, "bad", ["new", "good", "-", "-"], [False, False, True, True], [False] * 4)
    # V(bad) = (V(bad) + V(good)) / 4, with V(good) = 1.
    assert chain.values(["good", "bad"]) == pytest.approx([1.0, 1 / 3], abs=1e-3)


def test_asking_changes_nothing() -> None:
    chain = walk(3, gamma=0.9)
    np.testing.assert_array_equal(chain.values(["a", "b"]), chain.values(["a", "b"]))


def test_counts_fade_and_are_forgotten() -> None:
    chain = walk(10)
    chain.fade(0.5)
    assert chain.steps("a") == 10
    for _ in range(20):
        chain.fade(0.5)
    assert len(chain) == 0


def test_a_faded_chain_is_the_chain_of_fewer_steps() -> None:
    faded, fewer = walk(10, gamma=0.9), walk(5, gamma=0.9)
    assert faded.values(["a", "b"])[1] > fewer.values(["a", "b"])[1]
    faded.fade(0.5)
    assert faded.values(["a", "b"]) == pytest.approx(fewer.values(["a", "b"]), abs=1e-4)


def test_the_least_recently_sampled_state_is_forgotten() -> None:
    chain = StateChain(1.0, 2)
    for key in ("a", "b", "a", "c"):
        observe(chain, key, ["-"], [True], [True])
    assert [chain.steps(key) for key in "abc"] == [2, 0, 1]


def test_it_travels_as_json() -> None:
    chain, other = walk(3, gamma=0.9), StateChain(0.9, 100)
    other.load_json(json.loads(json.dumps(chain.to_json())))
    observe(other, "a", ["b"], [False], [False])
    observe(chain, "a", ["b"], [False], [False])
    np.testing.assert_array_equal(chain.values(["a", "b", "c"]), other.values(["a", "b", "c"]))
    other.load_json(json.loads(json.dumps(chain.to_json())))
    np.testing.assert_array_equal(chain.values(["a", "b", "c"]), other.values(["a", "b", "c"]))


def known(**keys: object) -> ChainValues:
    """V(a) = 0.75·0.9 and V(b) = 0.75 or nearly, in an average run."""
    values = ChainValues(settings_of("chain-search", gamma=0.9, **keys))
    for _ in range(20_000):
        values.observe("a", Outcomes(("b",), (False,), (False,)))
        values.observe("b", Outcomes(("-",) * 4, (True,) * 4, (True, True, True, False)))
    for number in range(39):
        values.finish(["a", "b"], number < 29, terminal=True)
    return values


def test_a_step_earns_half_the_progress_of_values() -> None:
    values, settings = known(), settings_of("chain-search", gamma=0.9)
    outcomes = Outcomes(("b", "new", "won", "lost"), (False, False, True, True), (False, False, True, False))
    found = step_rewards(["a"], outcomes, values, settings)
    here = 0.9 * 0.75
    expected = [0.0, 0.9 * here - here, 1.0 - here, 0.0 - here]
    assert found == pytest.approx([0.5 * value for value in expected], abs=1e-3)


def test_from_an_unseen_state_progress_is_against_the_average_trajectory() -> None:
    values = known()
    (gained,) = values.progress("unseen", 1, Outcomes(("won",), (True,), (True,)))
    assert gained == pytest.approx(1.0 - 29.5 / 40)


def test_novelty_and_success_can_be_paid_for_as_in_eq_2() -> None:
    keys = {"gamma": 0.9, "novelty": "changed", "novelty_fixed": 0.25, "success_weight": 0.5}
    values, settings = known(), settings_of("chain-search", **keys)
    won = Outcomes(("won",), (True,), (True,))
    assert step_rewards(["a"], won, values, settings)[0] == pytest.approx(0.25 + 0.25 * (1 - 0.675) + 0.5, abs=1e-3)
    bare = settings_of("chain-search", score_difference="none", success_weight=0.5)
    assert step_rewards(["a"], won, values, bare).tolist() == [0.5]


def test_no_state_is_given_up() -> None:
    values, settings = ChainValues(settings_of("chain-search")), settings_of("chain-search")
    values.observe("hopeless", Outcomes(("-",) * 5000, (True,) * 5000, (False,) * 5000))
    assert allocation("hopeless", 3, values, settings, 8) == (pytest.approx(1.0, abs=1e-3), 8)
    assert allocation("b", 2, known(), settings, 8) == (pytest.approx(2**-0.75, abs=1e-3), 5)
