"""DAPO's overlong penalty (section 7)."""

import pytest

from rl_agents.rewards.overlong import overlong_penalty


@pytest.mark.parametrize(("length", "expected"), [(0, 0.0), (15, 0.0), (16, 0.0), (18, -0.5), (20, -1.0), (25, -1.0)])
def test_reference_example_and_clamp(length, expected):
    assert overlong_penalty(length, 20, 4) == expected


def test_boundary_factor_and_impossible_values():
    assert overlong_penalty(4097, 8192, 4096) == pytest.approx(-1 / 4096)
    assert overlong_penalty(18, 20, 4, factor=0.2) == pytest.approx(-0.1)
    for cache in (0, 21):
        with pytest.raises(ValueError, match=rf"1\.\.20, got {cache}"):
            overlong_penalty(1, 20, cache)
    with pytest.raises(ValueError, match="factor"):
        overlong_penalty(1, 20, 4, factor=-1.0)
