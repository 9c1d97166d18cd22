"""What is counted, under which name, for how long; and the cases of eq. 1 reached by counting."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from search.drawn import settings_of

from rl_agents.algorithms.three_spo import StateCounts
from rl_agents.search.states import state_key


def counted(total: int, wins: int, **keys: object) -> StateCounts:
    """Counts in which the state "s" has these."""
    states = StateCounts(settings_of(**keys))
    for number in range(total):
        finish(states, ["s"], number < wins)
    return states


def finish(states: StateCounts, path: list[str], success: bool) -> None:
    states.finish(path, success, terminal=False)


def look(states: StateCounts, depth: int, state: str = "s") -> tuple[float, bool]:
    found = states.score([state], depth)
    return float(found.score[0]), bool(found.open[0])


def test_an_unseen_state_is_open_with_score_one() -> None:
    assert look(counted(0, 0), 5) == (1.0, True)


@pytest.mark.parametrize(
    ("total", "wins", "is_open"),
    [(9, 0, True), (10, 0, False), (10, 1, True), (11, 1, False), (20, 2, False), (12, 2, True)],
)
def test_the_gate_at_its_borders(total: int, wins: int, is_open: bool) -> None:
    score, opened = look(counted(total, wins), 3)
    assert opened is is_open and (score > 0) is is_open


@pytest.mark.parametrize(
    ("total", "wins", "score"), [(9, 0, 1.0), (10, 0, 1.0), (20, 1, 3**-0.05), (11, 2, 3 ** -(2 / 11))]
)
def test_where_the_gate_is_in_n_alone_the_score_is_that_of_the_rate(total: int, wins: int, score: float) -> None:
    found, opened = look(counted(total, wins, score_gate="count"), 3)
    assert found == pytest.approx(score, rel=1e-6)
    assert opened is look(counted(total, wins, score_gate="score"), 3)[1], "which states are closed does not change"


def test_alpha_can_be_chosen() -> None:
    assert look(counted(10, 1, score_alpha=50.0), 2)[0] == pytest.approx(0.03125, rel=1e-4)
    assert look(counted(10, 5, score_alpha=1.0), 7)[0] == pytest.approx(0.377965, rel=1e-5)
    assert look(counted(10, 5, score_alpha=2.0), 7)[0] == pytest.approx(0.377965**2, rel=1e-5)


def test_scores_are_float64() -> None:
    score, opened = look(counted(40, 40, score_alpha=50.0), 9)
    assert opened and 0 < score < float(np.finfo(np.float32).tiny)


def test_the_global_clock_counts_finished_trajectories() -> None:
    states = counted(6, 3, score_clock="global")
    assert look(states, 1)[0] == look(states, 9)[0] == pytest.approx(math.exp(-math.log(7) * 0.5), rel=1e-5)


def test_a_state_counts_once_per_trajectory_or_once_per_visit() -> None:
    for mode, expected in (("trajectory", (1, 1)), ("visit", (2, 2))):
        states = StateCounts(settings_of(state_count=mode))
        finish(states, ["a", "b", "a"], True)
        assert states.count("a") == expected and states.count("b") == (1, 1)
        assert states.finished == 1


def test_terminal_states_are_counted_or_not() -> None:
    for mode, expected in (("counted", (1, 1)), ("ignored", (0, 0))):
        states = StateCounts(settings_of(state_terminal=mode))
        states.finish(["a", "won"], True, terminal=True)
        assert states.count("won") == expected and states.count("a") == (1, 1)
        states.finish(["b"], False, terminal=False)
        assert states.count("b") == (1, 0), "a full context ends a trajectory in a state that goes on"


def test_equal_observations_of_two_tasks_are_one_state_unless_the_task_is_part_of_the_name() -> None:
    everywhere, per_task = settings_of(), settings_of(state_scope="task")
    names = {state_key(task, "You are in a room", everywhere) for task in ("one", "two")}
    assert len(names) == 1 and state_key("one", "Another room", everywhere) not in names
    assert state_key("one", "You are in a room", per_task) != state_key("two", "You are in a room", per_task)


def test_beyond_the_bound_the_states_least_recently_counted_are_forgotten() -> None:
    states = StateCounts(settings_of(), max_states=2)
    finish(states, ["a", "b"], True)
    finish(states, ["a"], False)
    finish(states, ["c"], True)
    assert [states.count(key) for key in "abc"] == [(2, 1), (0, 0), (1, 1)]
    assert len(states) == 2 and states.finished == 3


def test_counts_survive_json_in_their_order() -> None:
    states = StateCounts(settings_of(), max_states=3)
    for number, path in enumerate((["a", "b"], ["c", "a"], ["b"])):
        finish(states, path, number == 1)
    other = StateCounts(settings_of(), max_states=3)
    other.load_json(json.loads(json.dumps(states.to_json())))
    for each in (states, other):
        finish(each, ["d"], True)
    assert other.to_json() == states.to_json()
    assert states.count("c") == (0, 0), "the oldest went, in both"
