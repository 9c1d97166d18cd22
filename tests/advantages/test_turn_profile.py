"""PivotRL's turn filter and word measure (section 16)."""

import pytest

from rl_agents.algorithms.pivotrl import turn_profile
from rl_agents.pivot import PivotRule, choose_pivots
from rl_agents.rewards.verifiers.tool_calls import word_similarity


def pivots(outcomes, **bounds):
    names = [str(number) for number in range(len(outcomes))]
    return choose_pivots(*turn_profile(outcomes), names, PivotRule(**bounds)).tolist()


def test_profile_of_the_reference_example():
    outcomes = [[1, 1, 0, 0, 0, 0, 0, 0], [1] * 8, [0] * 8, [1] * 6 + [0] * 2]
    profile = turn_profile(outcomes)
    assert profile.mean.tolist() == [0.25, 1.0, 0.0, 0.75]
    assert profile.variance[0] == 0.1875
    assert pivots(outcomes) == [True, False, False, False]
    assert pivots(outcomes, max_mean=0.8) == [True, False, False, True]


def test_no_turns_and_empty_turns():
    assert pivots([]) == []
    with pytest.raises(ValueError, match="at least one rollout"):
        turn_profile([[]])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("one two three four", "one two three four", 0.5),
        ("population of paris 2020", "paris population census 2020", 0.375),
        ("Population of PARIS 2020", "paris population census 2020", 0.375),
        ("weather in rome", "latest stock news", 0.0),
        ("a a b", "a b b", 2 / 6),
        ("paris", "paris", 1.0),
        ("paris", "Paris", 0.0),
        ("paris", "paris france", 0.0),
        ("", "", 1.0),
    ],
)
def test_word_similarity(first, second, expected):
    assert word_similarity(first, second) == pytest.approx(expected)
    assert word_similarity(second, first) == pytest.approx(expected)
