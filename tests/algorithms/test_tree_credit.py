"""Credit over trees of calls: the worked example of docs/algorithms/steppo.md, chains, and random trees."""

import numpy as np
import pytest
from algorithms.call_trees import (
    abandoned,
    call,
    chained,
    dialogues,
    random_values,
    session,
    step_advantage,
    token_advantages,
    trees,
    value_after,
    with_a_subagent,
)  # fmt: skip
from algorithms.handmade import credited, episode, per_step, settings_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_agents.algorithms import ALGORITHMS
from rl_agents.algorithms.gigpo import step_returns
from rl_agents.data.samples import Row, build_samples
from rl_agents.data.step_table import StepTable
from rl_agents.data.trajectory import Trajectory

LAYOUTS = pytest.mark.parametrize("layout", ["merged", "per_step"])


def give_values(rows: list[Row], values: list[list[list[float]]]) -> None:
    """The critic's value of every sampled token."""
    for row in rows:
        row.values = np.zeros(len(row), np.float32)
        for step in np.unique(row.segments[row.mask > 0]):
            row.values[row.segments == step] = values[row.trajectory][step]


def learned(algo: str, trajectories: list[Trajectory], layout: str, values: object = None, **keys: object) -> list[Row]:
    rows = build_samples(trajectories, layout)
    give_values(rows, values or [random_values(t, n) for n, t in enumerate(trajectories)])  # type: ignore[arg-type]
    for row in rows:
        if keys.get("bootstrap_on_truncation") and row.last and not row.terminated:
            row.value_after = value_after(int(row.segments[-1]))
    credit = ALGORITHMS[algo].credit
    assert credit is not None
    credit(rows, trajectories, settings_of(algo, **keys))
    return rows


@LAYOUTS
def test_worked_example_with_step_gae(layout: str) -> None:
    values = [[[0.2], [0.3], [0.5, 0.5], [0.5], [0.4, 9.0], [0.6]]]
    keys = {"gamma": 0.9, "gae_lambda": 0.8, "whiten": False}
    rows = learned("steppo", [with_a_subagent()], layout, values, **keys)
    assert per_step(rows) == pytest.approx([0.52216, 0.628, 0.16816, 0.428, 0.4], abs=1e-6)
    targets = {int(row.segments[j]): row.returns[j] for row in rows for j in np.flatnonzero(row.returns)}
    assert [targets[step] for step in (0, 1, 3, 4, 5)] == pytest.approx([0.72216, 0.928, 0.66816, 0.828, 1.0], abs=1e-6)


@LAYOUTS
def test_worked_example_with_other_credit(layout: str) -> None:
    won, lost = with_a_subagent(), with_a_subagent()
    lost.steps[1].reward, lost.steps[5].reward = 0.0, 0.0
    table = StepTable.build(build_samples([won], layout), [won])
    assert table.returns("trajectories").values.tolist() == pytest.approx([1.1])
    advantages = per_step(credited("grpo", [won, lost], layout))
    assert advantages == pytest.approx([0.707106] * 5 + [-0.707106] * 5, abs=1e-5), "every call shares the return"
    to_go = per_step(credited("gigpo", [won, lost], layout, gamma=0.9, gigpo_omega=0.0))
    assert to_go == pytest.approx([0.55] * 5 + [-0.55] * 5)
    assert per_step(credited("gigpo", [won], layout, gigpo_omega=0.0)) == [0.0] * 5, "nothing to compare with"

    rows = learned("ppo", [won], layout, gamma=0.9, gae_lambda=0.8, whiten=False)
    found = {(int(row.segments[j]), j): row.advantages[j] for row in rows for j in np.flatnonzero(row.mask)}
    expected = [a for t in (0, 1, 3, 4, 5) for a in token_advantages(won, t, random_values(won, 0), 0.9, 0.8, False)]
    assert [found[key] for key in sorted(found)] == pytest.approx(expected, abs=1e-6)


ALGOS = [
    "steppo", "chain-gae", "ppo", "reinforce++", "reinforce++-baseline", "grpo", "dr-grpo", "rloo", "gigpo", "hgpo",
    "dapo",
]  # fmt: skip


@pytest.mark.parametrize("algo", ALGOS)
@LAYOUTS
@settings(max_examples=20, deadline=None)
@given(st.lists(dialogues(), min_size=2, max_size=4))
def test_a_chain_is_a_plain_dialogue(algo: str, layout: str, plain: list[Trajectory]) -> None:
    """Bit for bit, with histories that are rewritten in the middle, states that recur, and cut episodes."""
    plain[-1].group_id = 5
    keys = {"bootstrap_on_truncation": True} if algo in ("steppo", "chain-gae", "ppo") else {}
    one = learned(algo, plain, layout, invalid_action_penalty=0.1, **keys)
    two = learned(algo, [chained(t) for t in plain], layout, invalid_action_penalty=0.1, **keys)
    assert len(one) == len(two)
    for left, right in zip(one, two, strict=True):
        assert (left.last, left.terminated, left.trajectory) == (right.last, right.terminated, right.trajectory)
        for name in ("input_ids", "segments", "mask", "rewards", "advantages", "returns"):
            a, b = getattr(left, name), getattr(right, name)
            assert (a is None) == (b is None) and (a is None or a.tobytes() == b.tobytes()), name


@LAYOUTS
@settings(max_examples=40, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.booleans())
def test_step_gae_over_random_trees(layout: str, trajectories: list[Trajectory], bootstrap: bool) -> None:
    keys = {"gamma": 0.9, "gae_lambda": 0.7, "whiten": False, "bootstrap_on_truncation": bootstrap}
    rows = learned("steppo", trajectories, layout, invalid_action_penalty=0.3, **keys)
    expected = []
    for number, trajectory in enumerate(trajectories):
        values = [value[0] for value in random_values(trajectory, number)]
        for t in range(len(trajectory.steps)):
            if not abandoned(trajectory, t):
                expected.append(step_advantage(trajectory, t, values, 0.9, 0.7, bootstrap, 0.3))
    assert per_step(rows) == pytest.approx(expected, abs=1e-5)


@LAYOUTS
@settings(max_examples=40, deadline=None)
@given(st.lists(trees(), min_size=1, max_size=3), st.booleans())
def test_token_credit_over_random_trees(layout: str, trajectories: list[Trajectory], bootstrap: bool) -> None:
    rows = learned(
        "ppo", trajectories, layout, gamma=0.9, gae_lambda=0.7, whiten=False, bootstrap_on_truncation=bootstrap
    )
    for number, trajectory in enumerate(trajectories):
        values = random_values(trajectory, number)
        for row in (row for row in rows if row.trajectory == number):
            for t in np.unique(row.segments[row.mask > 0]).tolist():
                expected = token_advantages(trajectory, t, values, 0.9, 0.7, bootstrap)
                assert row.advantages is not None and row.returns is not None
                assert row.advantages[row.segments == t] == pytest.approx(expected, abs=1e-5)
                assert row.returns[row.segments == t] == pytest.approx(np.add(expected, values[t]), abs=1e-5)


@LAYOUTS
@settings(max_examples=40, deadline=None)
@given(trees())
def test_returns_over_random_trees(layout: str, trajectory: Trajectory) -> None:
    """G_t and the reward-to-go are the same recursions with V = 0 and λ = 1."""
    rows = build_samples([trajectory], layout)
    steps = [t for t in range(len(trajectory.steps)) if not abandoned(trajectory, t)]
    if sum(row.mask.sum() for row in rows) < 2:
        return
    table = StepTable.build(rows, [trajectory])
    zeros = [[0.0] * len(step.response_ids) for step in trajectory.steps]
    expected = [step_advantage(trajectory, t, [0.0] * len(zeros), 0.9, 1.0, False, 0.0) for t in steps]
    order = np.argsort(table.index)
    assert step_returns(table, settings_of("gigpo", gamma=0.9))[order] == pytest.approx(expected)
    expected = np.concatenate([token_advantages(trajectory, t, zeros, 0.9, 1.0, False) for t in steps])
    rows = credited("reinforce++", [trajectory], layout, gamma=0.9)
    found = [a for t in steps for row in rows for a in row.advantages[row.segments == t]]
    if expected.std() > 1e-3:
        expected = (expected - expected.mean()) / expected.std(ddof=1)
        assert found == pytest.approx(expected, abs=1e-3)


@LAYOUTS
def test_hgpo_reads_the_history_of_the_conversation(layout: str) -> None:
    """Two sessions with the same states; in one a subagent's step stands in the list between the agent's two."""
    alone = session(call([1], [2], None), call([5, 1], [2], None, reward=1.0))
    helped = session(call([1], [2], 2), call([7], [3], 2), call([5, 1], [2], None))
    table = StepTable.build(build_samples([alone, helped], layout), [alone, helped])
    assert table.anchors == ["1", "5", "1", "7", "5"] and table.previous.tolist() == [-1, 0, -1, -1, 2]
    advantages = per_step(credited("hgpo", [alone, helped], layout, gamma=1.0, step_norm="mean", hgpo_history=1))
    assert advantages == pytest.approx([0.5, 0.5, -0.5, 0.0, -0.5])


@LAYOUTS
def test_an_abandoned_call_changes_nothing(layout: str) -> None:
    """Not the whitening, not the group, not the critic's targets."""
    with_retry, without = with_a_subagent(), with_a_subagent()
    del without.steps[2]
    without.steps[1].next_step = 4
    other = episode(4, [0, 0, 1])
    for algo in ("steppo", "ppo", "reinforce++", "grpo", "hgpo", "gigpo"):
        values = random_values(with_retry, 0)
        one = learned(algo, [with_retry, other], layout, [values, random_values(other, 1)])
        two = learned(algo, [without, other], layout, [values[:2] + values[3:], random_values(other, 1)])
        for left, right in zip(one, two, strict=True):
            assert left.advantages is not None and right.advantages is not None
            assert left.advantages.tobytes() == right.advantages.tobytes()


def test_equal_states_of_any_conversation_are_compared() -> None:
    """GiGPO's anchors: the subagent's state in one session is the agent's in another."""
    one = session(call([7], [3], 1), call([1], [2], None, reward=1.0))
    other = session(call([7], [4], None))
    table = StepTable.build(build_samples([one, other], "merged"), [one, other])
    assert table.anchors == ["7", "1", "7"]
    keys = {"gamma": 1.0, "gigpo_omega": 1.0}
    advantages = per_step(credited("gigpo", [one, other], "merged", **keys))
    assert advantages == pytest.approx([0.5 + 0.5, 0.5, -0.5 - 0.5])
