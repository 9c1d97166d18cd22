from dataclasses import replace

from rl_agents.data.failures import BadTasks
from rl_agents.data.tasks import task_at, training_specs
from rl_agents.data.trajectory import Trajectory


def group(task: str, *causes: str) -> list[Trajectory]:
    return [Trajectory(task, 0, i, i, end_cause=c, failed=c.startswith("env_")) for i, c in enumerate(causes)]


GOOD = group("good", *["terminated"] * 8)


def test_a_task_that_hangs_for_everyone_is_left_out_at_once() -> None:
    bad = BadTasks()
    hung = group("hangs", "env_timeout: reset", "env_timeout: reset")
    assert bad.observe(GOOD + hung + group("sometimes", "env_timeout: step", "terminated")) == {
        "hangs": "env_timeout: reset"
    }
    assert bad.observe(GOOD + hung) == {} and list(bad.left_out) == ["hangs"]


def test_a_task_that_raises_gets_a_second_chance_and_judges_blame_no_task() -> None:
    bad = BadTasks()
    raised = group("raises", "env_error: x", "env_garbage: y") + group("judged", "judge_error: z")
    assert bad.observe(GOOD + raised) == {}
    assert list(bad.observe(GOOD + raised)) == ["raises"]


def test_when_most_episodes_fail_no_task_is_to_blame() -> None:
    bad = BadTasks()
    assert bad.observe(group("a", "env_timeout: x") + group("b", "env_timeout: x")) == {}


def test_what_judges_say_changes_nothing_of_what_is_drawn() -> None:
    """They may answer after the next batch was begun."""
    hung = group("hangs", "env_timeout: reset", "env_timeout: reset")
    judged = [replace(t, failed=True, end_cause="judge_error: no verdict") for t in GOOD]
    assert BadTasks().observe(judged + hung) == BadTasks().observe(GOOD + hung) == {"hangs": "env_timeout: reset"}


def test_left_out_tasks_are_replaced_and_the_others_stay_in_place() -> None:
    tasks = [f"t{i}" for i in range(8)]
    before = [task_at(tasks, position, 3) for position in range(24)]
    after = [task_at(tasks, position, 3, {"t2", "t5"}) for position in range(24)]
    assert not {"t2", "t5"} & set(after)
    assert all(a == b for a, b in zip(after, before, strict=True) if b not in ("t2", "t5"))
    assert task_at(["only"], 0, 3, {"only"}) == "only"
    specs = training_specs(tasks, 0, 8, 2, 3, left_out={"t2"})
    assert "t2" not in {spec.task_id for spec in specs} and len(specs) == 16
