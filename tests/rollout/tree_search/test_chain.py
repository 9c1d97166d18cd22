"""The chain of sampled steps: its values against algebra, and against the search's own preferences."""

import json

import numpy as np
import pytest

from rl_agents.rollout.tree_search.states import Outcomes, StateChain


def observe(chain: StateChain, key: str, children: list[str], ended: list[bool], solved: list[bool]) -> None:
    chain.observe(key, Outcomes(tuple(children), tuple(ended), tuple(solved)))


def walk(steps: int, gamma: float = 1.0) -> StateChain:
    """a -> b (half), a -> a (half); b ends, solved in three of four."""
    chain = StateChain(gamma, 100)
    for _ in range(steps):
        observe(chain, "a", ["a", "b"], [False, False], [False, False])
        observe(chain, "b", ["-"] * 4, [True] * 4, [True, True, True, False])
    return chain


def test_values_solve_the_chain_and_asking_changes_nothing() -> None:
    assert walk(20_000).values(["a", "b"]) == pytest.approx([0.75, 0.75], abs=1e-3)
    discounted = walk(20_000, gamma=0.9).values(["a", "b"])
    assert discounted == pytest.approx([0.9 * 0.5 * 0.75 / (1 - 0.9 * 0.5), 0.75], abs=1e-3)
    chain = walk(3, gamma=0.9)
    np.testing.assert_array_equal(chain.values(["a", "b"]), chain.values(["a", "b"]))


def test_which_child_is_entered_does_not_matter() -> None:
    """A search that enters only the child that wins leaves the value where the policy's samples put it."""
    chain = StateChain(1.0, 100)
    for _ in range(500):
        observe(chain, "start", ["good", *["bad"] * 3], [False] * 4, [False] * 4)
        observe(chain, "good", ["-"], [True], [True])
    observe(chain, "bad", ["-"] * 50, [True] * 50, [False] * 50)
    start, bad = chain.values(["start", "bad"])
    assert start == pytest.approx(0.25, abs=0.02) and bad < 0.02


def test_unseen_states_and_children_without_samples() -> None:
    chain = StateChain(1.0, 100)
    assert chain.values(["x"]).tolist() == [0.0] and chain.steps("x") == 0
    observe(chain, "a", ["-", "-"], [True, True], [True, False])
    assert chain.values(["x"], prior=0.3).tolist() == [0.3]
    assert chain.values(["x"])[0] == pytest.approx(0.5, abs=1e-3)
    assert chain.steps("a") == 2
    chain = StateChain(1.0, 100)
    observe(chain, "a", ["new", "-", "-"], [False, True, True], [False, True, False])
    assert chain.values(["a"])[0] == pytest.approx(0.5, abs=1e-3)
    chain = StateChain(1.0, 100)
    for _ in range(20_000):
        observe(chain, "good", ["new", "-", "-"], [False, True, True], [False, True, True])
        observe(chain, "bad", ["new", "good", "-", "-"], [False, False, True, True], [False] * 4)
    # V(bad) = (V(bad) + V(good)) / 4, with V(good) = 1.
    assert chain.values(["good", "bad"]) == pytest.approx([1.0, 1 / 3], abs=1e-3)


def test_counts_fade_and_are_forgotten() -> None:
    chain = walk(10)
    chain.fade(0.5)
    assert chain.steps("a") == 10
    for _ in range(20):
        chain.fade(0.5)
    assert len(chain) == 0
    faded, fewer = walk(10, gamma=0.9), walk(5, gamma=0.9)
    assert faded.values(["a", "b"])[1] > fewer.values(["a", "b"])[1]
    faded.fade(0.5)
    assert faded.values(["a", "b"]) == pytest.approx(fewer.values(["a", "b"]), abs=1e-4)
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
