"""Which tasks are played, and with which streams, depends on seed and position only."""

from collections import Counter

import pytest

from rl_agents.data.difficulty import Difficulty
from rl_agents.data.tasks import (
    EVALUATION,
    TRAINING,
    TaskMix,
    draw_tasks,
    evaluation_specs,
    item_at,
    stream_seed,
    training_specs,
)

TASKS = [f"task-{i}" for i in range(10)]


def test_every_pass_is_a_permutation() -> None:
    passes = [[item_at(TASKS, epoch * 10 + i, 3, TRAINING) for i in range(10)] for epoch in range(3)]
    assert all(sorted(order) == sorted(TASKS) for order in passes)
    assert passes[0] != passes[1] != passes[2]


def test_specs_do_not_depend_on_history() -> None:
    late = training_specs(TASKS, 7, 4, 3, seed=1)
    assert late == training_specs(TASKS, 7, 4, 3, seed=1)
    assert len({spec.seed for spec in late}) == 12
    assert [spec.group_id for spec in late] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert len({spec.task_id for spec in late if spec.group_id == 0}) == 1
    assert not {spec.seed for spec in late} & {spec.seed for spec in training_specs(TASKS, 8, 4, 3, seed=1)}


def test_an_epoch_of_iterations_meets_every_task_once() -> None:
    met = [spec.task_id for i in range(5) for spec in training_specs(TASKS, i, 2, 1, seed=0)]
    assert sorted(met) == sorted(TASKS)


def test_evaluations_meet_the_same_tasks_with_other_streams() -> None:
    first, second = evaluation_specs(TASKS, 12, seed=0), evaluation_specs(TASKS, 12, seed=1)
    assert [spec.task_id for spec in first] == [spec.task_id for spec in second]
    assert {spec.task_id for spec in first[:10]} == set(TASKS)
    assert not {spec.seed for spec in first} & {spec.seed for spec in second}


def test_streams_are_apart() -> None:
    assert len({stream_seed(0, TRAINING, 5), stream_seed(0, EVALUATION, 5), stream_seed(1, TRAINING, 5)}) == 3


def test_further_groups_of_an_iteration_go_on_in_the_stream() -> None:
    whole = training_specs(TASKS, 3, 4, 2, seed=1, position=10)
    first = training_specs(TASKS, 3, 2, 2, seed=1, position=10)
    further = training_specs(TASKS, 3, 2, 2, seed=1, position=12, first_group=2)
    assert first + further == whole


MIX = TaskMix({"a": [f"a::{i}" for i in range(7)], "b": [f"b::{i}" for i in range(4)], "c": ["c::0"]}, (3.0, 2.0, 1.0))


def test_environments_are_drawn_by_weight_whatever_the_batches() -> None:
    drawn = draw_tasks(MIX, 0, 600, 5)
    assert Counter(task[0] for task in drawn) == pytest.approx({"a": 300, "b": 200, "c": 100}, abs=3)
    for start in range(0, 600, 60):
        assert Counter(task[0] for task in drawn[start : start + 60]) == pytest.approx(
            {"a": 30, "b": 20, "c": 10}, abs=3
        )
    assert drawn == [task for start in range(0, 600, 7) for task in draw_tasks(MIX, start, 7, 5)][:600]
    assert drawn != draw_tasks(MIX, 0, 600, 6), "another seed draws otherwise"
    for name, own in MIX.sets.items():
        stream = [task for task in drawn if task[0] == name]
        assert stream == draw_tasks(own, 0, len(stream), 5), "as in a run over this environment alone"


def test_an_excluded_environment_loses_its_draws_to_the_others_whose_streams_stay() -> None:
    whole, less = draw_tasks(MIX, 0, 300, 5), draw_tasks(MIX, 0, 300, 5, {"a", "b::1"})
    assert Counter(task[0] for task in less) == pytest.approx({"b": 200, "c": 100}, abs=25)
    assert all(new == old for new, old in zip(less, whole, strict=True) if old[0] != "a" and old != "b::1")
    assert "b::1" not in less and draw_tasks(MIX, 0, 3, 5, {"a", "b", "c"}) == whole[:3]


def test_a_curriculum_weighs_the_tasks_within_each_environment() -> None:
    solved = Difficulty(0.1, {f"a::{i}": (16.0, 16.0) for i in range(6)} | {"a::6": (8.0, 16.0)})
    drawn = Counter(task for start in range(0, 600, 2) for task in draw_tasks(MIX, start, 2, 5, (), solved))
    assert drawn["a::6"] > 200 and sum(n for task, n in drawn.items() if task[0] == "a") == pytest.approx(300, abs=3)


def test_an_evaluation_has_equally_many_episodes_of_each_environment() -> None:
    specs = evaluation_specs(MIX, 12, seed=0)
    assert Counter(spec.task_id[0] for spec in specs) == {"a": 4, "b": 4, "c": 4}
    alone = evaluation_specs(MIX.sets["b"], 4, seed=0)
    assert [spec.task_id for spec in specs if spec.task_id[0] == "b"] == [spec.task_id for spec in alone]
    assert len({spec.seed for spec in specs}) == len({spec.group_id for spec in specs}) == 12
