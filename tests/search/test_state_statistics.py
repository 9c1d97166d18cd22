"""What is counted, under which name, for how long; and the cases of eq. 1 reached by counting."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from rl_agents.search.statistics import StateStatistics
from search.drawn import settings_of


def counted(total: int, wins: int, **keys: object) -> StateStatistics:
    """Statistics in which the state "s" has these counts."""
    statistics = StateStatistics(settings_of(**keys))
    for number in range(total):
        statistics.finish([statistics.key("task", "s")], number < wins)
    return statistics


def look(statistics: StateStatistics, depth: int, state: str = "s") -> tuple[float, bool]:
    found = statistics.score([statistics.key("task", state)], depth)
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


def test_presets_are_alpha_50_and_1_and_alpha_can_be_chosen() -> None:
    assert look(counted(10, 1, score_preset="paper"), 2)[0] == pytest.approx(0.03125, rel=1e-4)
    assert look(counted(10, 5, score_preset="graded"), 7)[0] == pytest.approx(0.377965, rel=1e-5)
    assert look(counted(10, 5, score_alpha=2.0), 7)[0] == pytest.approx(0.377965**2, rel=1e-5)


def test_scores_are_float64() -> None:
    score, opened = look(counted(40, 40, score_preset="paper"), 9)
    assert opened and 0 < score < float(np.finfo(np.float32).tiny)


def test_the_global_clock_counts_finished_trajectories() -> None:
    statistics = counted(6, 3, score_clock="global")
    assert look(statistics, 1)[0] == look(statistics, 9)[0] == pytest.approx(math.exp(-math.log(7) * 0.5), rel=1e-5)


def test_a_state_counts_once_per_trajectory_or_once_per_visit() -> None:
    for mode, expected in (("trajectory", (1.0, 1.0)), ("visit", (2.0, 2.0))):
        statistics = StateStatistics(settings_of(state_count=mode))
        statistics.finish(["a", "b", "a"], True)
        assert statistics.count("a") == expected and statistics.count("b") == (1.0, 1.0)
        assert statistics.finished == statistics.solved == 1


def test_equal_observations_of_two_tasks_are_one_state_unless_the_task_is_part_of_the_name() -> None:
    everywhere, per_task = StateStatistics(settings_of()), StateStatistics(settings_of(state_scope="task"))
    assert everywhere.key("one", "You are in a room") == everywhere.key("two", "You are in a room")
    assert per_task.key("one", "You are in a room") != per_task.key("two", "You are in a room")


@pytest.mark.parametrize(
    ("normaliser", "same"),
    [("none", [False, False]), ("whitespace", [True, False]), ("digits", [True, True])],
)
def test_near_equal_observations(normaliser: str, same: list[bool]) -> None:
    statistics = StateStatistics(settings_of(state_normaliser=normaliser))
    base = statistics.key("t", "shelf 1 has a cup 2")
    others = ["shelf 1  has a cup 2\n", "shelf 3 has a cup 12"]
    assert [statistics.key("t", text) == base for text in others] == same


def test_beyond_the_bound_the_states_least_recently_counted_are_forgotten() -> None:
    statistics = StateStatistics(settings_of(max_states=2))
    statistics.finish(["a", "b"], True)
    statistics.finish(["a"], False)
    statistics.finish(["c"], True)
    assert [statistics.count(key) for key in "abc"] == [(2.0, 1.0), (0.0, 0.0), (1.0, 1.0)]
    assert len(statistics) == 2 and statistics.finished == 3


def test_counts_fade_and_closed_states_open_again() -> None:
    statistics = counted(10, 0, state_decay=0.5)
    assert look(statistics, 3) == (0.0, False)
    statistics.iteration += 1
    assert statistics.count(statistics.key("task", "s")) == (5.0, 0.0) and look(statistics, 3)[1]
    statistics.finish([statistics.key("task", "s")], True)
    assert statistics.count(statistics.key("task", "s")) == (6.0, 1.0)


def test_success_rates_fall_back_on_their_prior() -> None:
    statistics = counted(3, 3)
    rates = statistics.success_rate([statistics.key("task", "s"), "unseen"], 0.2)
    assert rates.tolist() == [pytest.approx(3.2 / 4), 0.2]
    assert statistics.overall_rate() == pytest.approx(3.5 / 4) and StateStatistics(settings_of()).overall_rate() == 0.5


def test_statistics_survive_json_in_their_order() -> None:
    statistics = StateStatistics(settings_of(max_states=3, state_decay=0.9))
    for number, path in enumerate((["a", "b"], ["c", "a"], ["b"])):
        statistics.finish(path, number == 1)
        statistics.iteration += 1
    other = StateStatistics(settings_of(max_states=3, state_decay=0.9))
    other.load_json(json.loads(json.dumps(statistics.to_json())))
    for each in (statistics, other):
        each.finish(["d"], True)
    assert other.to_json() == statistics.to_json()
    assert statistics.count("c") == (0.0, 0.0), "the oldest went, in both"


def test_a_trajectory_may_count_in_part_and_at_a_states_first_visit() -> None:
    statistics = StateStatistics(settings_of())
    statistics.finish(["a", "b", "a"], True, [0.25, 0.5, 1.0])
    assert statistics.count("a") == (0.25, 0.25) and statistics.count("b") == (0.5, 0.5)


def test_the_depth_can_be_part_of_a_states_name() -> None:
    plain, deep = StateStatistics(settings_of()), StateStatistics(settings_of(state_depth=True))
    assert plain.key("t", "s", 2) == plain.key("t", "s", 3) and deep.key("t", "s", 2) != deep.key("t", "s", 3)
