"""T3's truncation rules (section 17)."""

import pytest
from rollout.stalls import fires_at

from rl_agents.envs.preference_estimation.env import progresses


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
