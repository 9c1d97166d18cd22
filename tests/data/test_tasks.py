"""Which tasks are played, and with which streams, depends on seed and position only."""

from rl_agents.data.tasks import EVALUATION, TRAINING, evaluation_specs, item_at, stream_seed, training_specs

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
