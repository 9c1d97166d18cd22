"""Trees of calls: what follows what, and the rows that are made of them."""

import numpy as np
import pytest
from algorithms.call_trees import abandoned, call, session, trees, with_a_subagent
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.data.samples import build_samples
from rl_agents.data.trajectory import ABANDONED, Trajectory
from rl_agents.data.tree import credited, ends, followers, last_word, parents


def test_what_follows_what_by_hand() -> None:
    tree = with_a_subagent()
    assert followers(tree) == [1, 5, ABANDONED, 4, 5, -1]
    assert ends(followers(tree)) == [5, 5, 2, 5, 5, 5]
    assert credited(tree) == [True, True, False, True, True, True]
    assert parents(tree) == [-1, 0, -1, -1, 3, 4], "a report joins the conversation that it is handed to"
    assert last_word(tree) == 5


def test_the_last_word_is_not_an_abandoned_one() -> None:
    assert last_word(session(call([1], [2], None), call([1, 2], [3], -1), call([1], [4], ABANDONED))) == 1
    assert last_word(session(call([1], [2], ABANDONED))) == 0
    assert last_word(session()) == -1


def test_a_retry_that_was_rewarded_by_itself_counts() -> None:
    tree = session(call([1], [2], 1), call([1, 2], [3], ABANDONED, reward=0.5), call([1], [4], None))
    assert credited(tree) == [True, True, True]
    assert [row.segments.max() for row in build_samples([tree], "merged")] == [1, 2]


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ([1, 2, 3], "step 2 of 3 is followed by step 3"),
        ([-3, None, None], "step 0 of 3 is followed by step -3"),
        ([1, 0, -1], "followed by itself"),
        ([0, None, None], "followed by itself"),
    ],
)
def test_ways_that_lead_nowhere_are_errors(links: list[int | None], said: str) -> None:
    tree = session(*(call([1], [2], link) for link in links))
    with pytest.raises(ValueError, match=said):
        build_samples([tree], "merged")


def test_rows_by_hand() -> None:
    subagent, agent = build_samples([with_a_subagent()], "merged")
    assert subagent.input_ids.tolist() == [8, 9, 3, 4, 5] and subagent.segments.tolist() == [-1, -1, 0, -1, 1]
    assert agent.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert agent.segments.tolist() == [-1, -1, 3, -1, 4, 4, -1, 5]
    assert agent.mask.tolist() == [0, 0, 1, 0, 1, 1, 0, 1]
    assert [(row.last, row.terminated) for row in (subagent, agent)] == [(False, False), (True, True)]
    assert len(build_samples([with_a_subagent()], "per_step")) == 5


def test_a_branch_begins_a_row_that_does_not_train_what_it_shares() -> None:
    rewritten = session(
        call([1, 2], [3], 1), call([1, 2, 3, 4], [5], 3), call([1, 2, 3, 7], [8], -1), call([1, 2, 3, 9], [6], -1)
    )
    first, side, rest = build_samples([rewritten], "merged")
    assert first.segments.tolist() == [-1, -1, 0, -1, 1]
    assert side.input_ids.tolist() == [1, 2, 3, 7, 8] and side.mask.tolist() == [0, 0, 0, 0, 1]
    assert rest.input_ids.tolist() == [1, 2, 3, 9, 6] and rest.mask.tolist() == [0, 0, 0, 0, 1]
    assert [row.last for row in (first, side, rest)] == [False, True, True], "the rewritten history goes on in `rest`"


def sampled(trajectories: list[Trajectory], mode: str) -> list[tuple[object, ...]]:
    return sorted(
        (row.trajectory, int(row.segments[j]), j, tuple(row.input_ids[: j + 1]), row.logprobs[j], row.rewards[j])
        for row in build_samples(trajectories, mode) for j in np.flatnonzero(row.mask)
    )  # fmt: skip


@settings(deadline=None)
@given(st.lists(trees(), max_size=3))
def test_every_sampled_token_is_in_exactly_one_row(trajectories: list[Trajectory]) -> None:
    expected = []
    for index, trajectory in enumerate(trajectories):
        for number, step in enumerate(trajectory.steps):
            ids, start = step.prompt_ids + step.response_ids, len(step.prompt_ids)
            if not abandoned(trajectory, number):
                last = len(step.response_ids) - 1
                expected += [
                    (index, number, start + j, tuple(ids[: start + j + 1]), np.float32(step.logprobs[j]),
                     step.reward if j == last else 0.0)
                    for j in range(last + 1)
                ]  # fmt: skip
    assert sampled(trajectories, "merged") == sampled(trajectories, "per_step") == sorted(expected)


@settings(deadline=None)
@given(trees())
def test_rows_go_along_lineages_only(trajectory: Trajectory) -> None:
    links = followers(trajectory)
    for row in build_samples([trajectory], "merged"):
        steps = list(dict.fromkeys(row.segments[row.mask > 0].tolist()))
        assert [links[step] for step in steps[:-1]] == steps[1:]
        assert row.last == (links[steps[-1]] < 0)
