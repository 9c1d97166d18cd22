"""T3's truncation rules (section 17)."""

import pytest
from rollout.stalls import fires_at


@pytest.mark.parametrize("k", [1, 2, 5])
def test_fires_after_exactly_k_stalls_even_before_any_progress(k):
    assert fires_at([False] * (k - 1), k) is None
    assert fires_at([False] * k, k) == k
    assert fires_at([False] * (k - 1) + [True] + [False] * k, k) == 2 * k
    assert fires_at([False] * (k - 1) + [True] + [False], k, "cumulative") == k + 1


def test_minimum_turns_delay_but_do_not_forget():
    assert fires_at([False] * 9, 2, minimum_turns=6) == 6
    assert fires_at([False] * 5 + [True] + [False] * 3, 2, minimum_turns=6) == 8
