"""Tags of responses: the walk over them finds what the regular expression would, without its quadratic time."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from rl_agents.envs.tags import read_tags

_WHOLE = re.compile(r"<(interact|answer)>(.*?)</\1>", re.DOTALL)
_PIECES = st.sampled_from(["<answer>", "</answer>", "<interact>", "</interact>", "x", "\n", "<"])


@given(st.lists(_PIECES, max_size=10).map("".join))
def test_the_walk_equals_the_expression(text: str) -> None:
    found, action = _WHOLE.findall(text), read_tags(text)
    assert (action.kind == "malformed") == (len(found) != 1)
    if len(found) == 1:
        assert (action.kind, action.content) == (found[0][0], found[0][1].strip())


def test_many_openings_take_no_time() -> None:
    assert read_tags("<answer>" * 30_000 + "<interact>x</interact>").content == "x"
