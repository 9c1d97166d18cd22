"""An advantage's formula is named if and only if it gives the recorded number."""

import pytest

from rl_agents.advantages import step_gae, whiten_steps
from rl_agents.viewer.advantage_explanation import Member, equal_returns, from_group, from_values


def units(returns: list[float], advantages: list[float | None]) -> list[Member]:
    return [Member(f"m{i}", r, a) for i, (r, a) in enumerate(zip(returns, advantages, strict=True))]


@pytest.mark.parametrize(
    ("returns", "advantages", "formula"),
    [
        ([0, 1, 1, 1], [-1.5, 0.5, 0.5, 0.5], "(R − mean of the group) / standard deviation"),
        ([0, 1, 1, 1], [-1.7320508, 0.57735, 0.57735, 0.57735], "(R − mean of the group) / population deviation"),
        ([0, 1, 1, 1], [-0.75, 0.25, 0.25, 0.25], "R − mean of the group"),
        ([0, 1, 1, 1], [-1, 1 / 3, 1 / 3, 1 / 3], "R − mean of the others"),
        ([0, 1, 1, 1], [-1.5, None, 0.5, None], "(R − mean of the group) / standard deviation"),
    ],
)
def test_of_a_group(returns, advantages, formula):
    found = from_group(units(returns, advantages), "m0")
    assert found is not None and found["formula"] == formula
    assert found["result"] == pytest.approx(advantages[0], abs=1e-5) and found["mean"] == 0.75
    assert -0.75 / found["divisor"] == pytest.approx(advantages[0], abs=1e-5)


@pytest.mark.parametrize(
    ("returns", "others", "advantages", "least"),
    [
        ([0, 0.01], [0, 200], [0, 0], "0.02"),
        ([0, 0.01], [0, 200], [-0.7, 0.7], None),
        ([0, 0.01], [0, 1], [0, 0], None),  # not equal there
        ([0, 1e-5], [], [0, 0], "0.0001"),
        ([0, 0], [], [0, 0], None),  # equal everywhere: a formula gives it
    ],
)
def test_returns_that_count_as_equal_in_their_batch(returns, others, advantages, least):
    found = equal_returns(units(returns, advantages), [*returns, *others])
    words = f"0, because returns that differ by at most {least} count as equal in this batch"
    assert (found is not None) == (least is not None)
    assert found is None or (found["formula"], found["result"], found["mean"]) == (words, 0.0, sum(returns) / 2)


@pytest.mark.parametrize(
    ("returns", "advantages"),
    [
        ([0, 1, 1, 1], [-1.4, 0.5, 0.5, 0.5]),  # another number
        ([0, 1, 1, 1], [-1.5, 0.5, 0.5, 0.4]),  # right for this one by chance alone
        ([0, 1, 1, 1], [None, 0.5, 0.5, 0.5]),  # not used for learning
        ([1.0], [0.0]),
        ([float("nan"), 1], [-0.7, 0.7]),
    ],
)
def test_no_formula_is_claimed_that_does_not_fit(returns, advantages):
    assert from_group(units(returns, advantages), "m0") is None


def test_of_values():
    """Whitened step GAE of two episodes, γ = 0.9 and λ = 0.8; the last step's TD error is r - V."""
    keys, episodes = {"gamma": 0.9, "gae_lambda": 0.8}, [([0.0, 0.0, 1.0], [0.5, 0.6, 0.7]), ([0.0, 0.0], [0.4, 0.2])]
    raw = [
        step_gae(r, v, [*range(1, len(r)), -1], final_values=[0.0] * len(r), gamma=0.9, lam=0.8).advantages.tolist()
        for r, v in episodes
    ]
    whitened = whiten_steps([*raw[0], *raw[1]]).tolist()
    parts = [whitened[:3], whitened[3:]]
    given = [list(zip(r, v, a, strict=True)) for (r, v), a in zip(episodes, parts, strict=True)]
    found = from_values(given, keys)
    assert found is not None and found[0][2]["delta"] == found[0][2]["gae"] == pytest.approx(0.3)
    assert found[1][0]["delta"] == pytest.approx(0.9 * 0.2 - 0.4)
    assert [step["result"] for step in found[0]] == pytest.approx(parts[0], abs=1e-6)
    off = [[(r, v, a + 0.1 * (i == 1)) for i, (r, v, a) in enumerate(steps)] for steps in given]
    assert from_values(off, keys) is None and from_values([[(0.0, None, 1.0)]], keys) is None
    corrected = from_values(off, {**keys, "transition_prior": 2.0})
    assert corrected is not None and corrected[0][2] == {"delta": found[0][2]["delta"], "gae": found[0][2]["gae"]}
