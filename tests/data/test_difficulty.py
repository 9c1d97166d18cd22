"""The difficulty curriculum: what it knows of tasks, and what it draws."""

from collections import Counter

import numpy as np
import pytest

from rl_agents.data.difficulty import MEMORY, Difficulty
from rl_agents.data.tasks import draw_tasks, task_at, training_specs
from rl_agents.data.trajectory import Trajectory

TASKS = [f"t{number}" for number in range(10)]


def episodes(task: str, *wins: bool, failed: bool = False) -> list[Trajectory]:
    return [Trajectory(task, 0, member, 0, success=win, failed=failed) for member, win in enumerate(wins)]


def known(uniform: float = 0.2, **solved: float) -> Difficulty:
    """Tasks with their solved episodes of eight."""
    return Difficulty(uniform, {task: (wins, 8.0) for task, wins in solved.items()})


def test_success_by_hand() -> None:
    kept = 1 - 1 / MEMORY
    state = Difficulty(0.2).after(episodes("a", True, False) + episodes("b", False) + episodes("c", True, failed=True))
    assert state.counts == {"a": (kept, kept + 1), "b": (0.0, 1.0)}, "failed episodes do not count"
    rates, number = state.success(["a", "b", "new"])
    mean = kept / (kept + 2)
    assert rates.tolist() == pytest.approx([(kept + mean) / (kept + 2), mean / 2, mean])
    assert number.tolist() == [kept + 1, 1, 0]
    assert Difficulty(0.2).success(["a"])[0].tolist() == [0.5], "nothing is known"
    many = Difficulty(0.2).after(episodes("a", *[True] * 500, *[False] * MEMORY))
    assert 0.3 < many.counts["a"][0] / many.counts["a"][1] < 0.4, "recent episodes count most"


def test_weights_are_the_variance_of_success_and_solved_tasks_are_retired() -> None:
    state = known(t0=8, t1=4, t2=0)
    assert state.weights(TASKS[:4]).tolist() == pytest.approx([0, 0.25, (0.5 / 9) * (8.5 / 9), 0.25])
    back = state.after(episodes("t0", *[False] * 4))
    assert back.weights(TASKS)[0] > 0, "a retired task that is no longer solved comes back"
    assert state.metrics(TASKS) == {
        "curriculum/new_tasks": 7, "curriculum/solved_tasks": 1, "curriculum/unsolved_tasks": 1,
        "curriculum/learnable_tasks": 1,
    }  # fmt: skip
    assert known(t0=8, t1=8).weights(TASKS)[2] == 0, "if all others are solved, a new one probably is"
    assert state.of(["t1", "other"]).counts == {"t1": (4, 8.0)}


def test_learnable_tasks_are_drawn_more_often_and_every_task_is_visited() -> None:
    state = known(**{task: 8 for task in TASKS[:5]}, **{task: 4 for task in TASKS[5:8]}, t8=1, t9=0)
    drawn = [task for turn in range(500) for task in draw_tasks(TASKS, 2 * turn, 2, 3, (), state)]
    counts = Counter(drawn)
    uniform = drawn[4::5]
    for start in range(0, 200, 10):
        assert sorted(uniform[start : start + 10]) == sorted(TASKS), "all tasks in turn"
    assert {counts[task] for task in TASKS[:5]} == {20}, "retired ones only so"
    assert min(counts[task] for task in TASKS[5:8]) > counts["t8"] > counts["t9"] > 20
    weights = state.weights(TASKS)[5:]
    share = np.array([counts[task] - 20 for task in TASKS[5:]]) / 800
    assert np.abs(share - weights / weights.sum()).max() < 0.05


@pytest.mark.parametrize("solved", [0, 8])
def test_where_all_tasks_are_alike_they_are_visited_in_turn(solved: int) -> None:
    drawn = Counter(draw_tasks(TASKS, 0, 100, 3, (), known(**dict.fromkeys(TASKS, solved))))
    assert set(drawn) == set(TASKS) and min(drawn.values()) >= 8
    whole = draw_tasks(TASKS, 7, 30, 3, {"t5"}, Difficulty(1.0))
    assert whole == [task_at(TASKS, 7 + number, 3, {"t5"}) for number in range(30)], "a share of 1 is uniform"


def test_draws_are_without_replacement_and_pass_over_busy_and_excluded_tasks() -> None:
    state = known(0.01, **dict.fromkeys(TASKS, 4))
    assert sorted(draw_tasks(TASKS, 0, 10, 3, (), state)) == TASKS
    free = sorted(draw_tasks(TASKS, 0, 6, 3, {"t0", "gone"}, state, {"t1", "t2", "t3"}))
    assert free == ["t4", "t5", "t6", "t7", "t8", "t9"]
    assert draw_tasks(["only"], 0, 3, 3, (), known(0.01, only=4)) == ["only"] * 3
    specs = training_specs(TASKS, 2, 4, 3, 3, position=20, difficulty=state)
    assert [spec.task_id for spec in specs[::3]] == draw_tasks(TASKS, 20, 4, 3, (), state)
    assert specs[4].seed == training_specs(TASKS, 2, 4, 3, 3)[4].seed, "seeds do not depend on the task"
