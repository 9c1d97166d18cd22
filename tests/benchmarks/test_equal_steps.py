"""What is on file for equal steps is what docs/research/equal-steps.md claims it to be."""

from benchmarks import equal_steps_page as page
from benchmarks import toy_text, unseen_tasks
from benchmarks.equal_steps import METHODS, WORLDS

UNSEEN = (
    unseen_tasks.Deduction, unseen_tasks.Rooms, unseen_tasks.Traps, unseen_tasks.Errand, unseen_tasks.Science,
    unseen_tasks.River,
)  # fmt: skip


def test_every_arm_on_file_is_a_method_and_every_picture_is_there() -> None:
    for name, arms in page.on_file().items():
        assert set(arms) <= set(METHODS), name
        assert (page.RESULTS / f"equal_steps_{name}.png").is_file()


def test_the_tasks_of_others_are_worlds() -> None:
    assert {f"gymnasium:{cls.__module__}:{cls.__name__}" for cls in (*UNSEEN, toy_text.Taxi, toy_text.Lake)} <= {
        world.env for world in WORLDS.values()
    }
