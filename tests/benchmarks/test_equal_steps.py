"""docs/research/equal-steps.md is what the results on file say, and its tasks are what they claim to be."""

from pathlib import Path

import pytest

from benchmarks import equal_steps_page as page
from benchmarks import toy_text, unseen_tasks
from benchmarks.doc_tables import named
from benchmarks.equal_steps import METHODS, WORLDS

UNSEEN = (
    unseen_tasks.Deduction, unseen_tasks.Rooms, unseen_tasks.Traps, unseen_tasks.Errand, unseen_tasks.Science,
    unseen_tasks.River,
)  # fmt: skip


def test_the_page_is_that_of_the_results() -> None:
    written = page.PAGE.read_text(encoding="utf-8")
    assert written == page.page(page.on_file()), "python -m benchmarks.equal_steps_page"


@pytest.mark.parametrize("path", page.WITH_OVERVIEW, ids=lambda path: path.name)
def test_the_short_table_is_that_of_the_results(path: Path) -> None:
    written = path.read_text(encoding="utf-8")
    assert page.OVERVIEW in named(written) and written == page.with_overview(written, page.on_file())


def test_every_arm_on_file_is_a_method_and_every_picture_is_there() -> None:
    for name, arms in page.on_file().items():
        assert set(arms) <= set(METHODS), name
        assert (page.RESULTS / f"equal_steps_{name}.png").is_file()


def test_the_tasks_of_others_are_worlds() -> None:
    assert {f"gymnasium:{cls.__module__}:{cls.__name__}" for cls in (*UNSEEN, toy_text.Taxi, toy_text.Lake)} <= {
        world.env for world in WORLDS.values()
    }
