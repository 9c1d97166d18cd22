"""Generated games: the same everywhere, solvable, and split by layout."""

import re
from collections import Counter

import pytest

from rl_agents.envs.alfworld import AlfworldOptions
from rl_agents.envs.alfworld import tasks as tasks_of
from rl_agents.envs.alfworld.generator import Entity, generated_file
from rl_agents.envs.alfworld.tasks import task_ids
from rl_agents.errors import InputError


def test_more_training_games_follow_the_usual_ones() -> None:
    usual, tasks = (tasks_of.generated_tasks("small", "train", count) for count in (0, 30_000))
    assert tasks_of.generated_tasks("small", "train", 7) == usual[:7] and tasks[:1200] == usual
    assert len(set(tasks)) == 30_000
    assert set(tasks).isdisjoint(tasks_of.generated_tasks("small", "test_seen"))
    assert {task.split("/")[2] for task in tasks} == {task.split("/")[2] for task in usual}
    families = Counter(task.split("/")[1] for task in tasks)
    assert max(families.values()) == min(families.values())
    assert generated_file(tasks[-1]).problem
    assert task_ids("train", AlfworldOptions(train_tasks=1201))[-1] == tasks[1200]


def test_pddl_names_number_entities_as_alfworld_does() -> None:
    assert [Entity("Mug", n).pddl for n in (1, 12)] == ["Mug_bar_98", "Mug_bar_87"]
    assert Entity("SinkBasin", 1).pddl == "Sink_bar_98_bar_SinkBasin"
    assert Entity("SinkBasin", 1).name == "sinkbasin 1"


@pytest.mark.parametrize(
    ("task", "message"),
    [("heat/kitchen-3/17", "a generated task is <size>/<family>/<layout>/<number>"),
     ("tiny/heat/kitchen-3/17", "unknown size 'tiny'"), ("small/heat/kitchen-17/17", "kitchen-1 to kitchen-16 exist"),
     ("small/heat/bedroom-3/17", "family heat needs one of kitchen"), ("small/heat/kitchen-3/-1", "unknown number"),
     ("small/heat/kitchen-3/²", "unknown number")],
)  # fmt: skip
def test_bad_task_ids_are_refused_in_one_line(task: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        generated_file(task)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
