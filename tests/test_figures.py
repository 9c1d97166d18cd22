"""The figures that pages promise below their training commands: `benchmarks.page_figures` ran them, and one runs here.

All commands run with RL_AGENTS_ALL_FIGURES=1.
"""

import os
import re
from pathlib import Path

import pytest

from benchmarks import page_figures
from benchmarks.page_figures import CALLS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Lines of a run that pages show.
LINE = re.compile(r"^ *(?:iter \d+/\d+ |success on (?:the test|training) tasks: ).*$", re.MULTILINE)
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
#: How far the end of a new run may be outside of the runs on file: three deviations of 256 episodes are 0.09.
SLACK = 0.1


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkout")
    page_figures.checkout(folder)
    return folder


@pytest.mark.parametrize("name", CALLS)
def test_the_page_has_the_command_that_was_run(name: str) -> None:
    assert page_figures.on_file()[name]["command"] == page_figures.printed(CALLS[name])


@pytest.mark.parametrize("name", CALLS)
def test_a_new_run_ends_where_the_page_says(name: str, checkout: Path) -> None:
    if name != "brief" and not os.environ.get("RL_AGENTS_ALL_FIGURES"):
        pytest.skip("takes minutes, and runs with RL_AGENTS_ALL_FIGURES=1")
    runs = page_figures.on_file()[name]["runs"]
    new = page_figures.measured(name, 0, checkout)
    ends = [run["success_end"] for run in runs.values()]
    assert new["iterations"] == runs["0"]["iterations"]
    assert min(ends) - SLACK <= new["success_end"] <= max(ends) + SLACK
    printed = {form(line) for line in LINE.findall((checkout / "said").read_text(encoding="utf-8"))}
    assert [line for line in shown() if not any(known.startswith(form(line)) for known in printed)] == []


def shown() -> list[str]:
    """The lines of runs on all pages."""
    found = [line for page in PAGES for line in LINE.findall(page.read_text(encoding="utf-8"))]
    assert len(found) > 8
    return found


def form(line: str) -> str:
    """A line without its numbers, and without the part that only 3spo prints."""
    return " ".join(NUMBER.sub("0", line).split()).replace("search 0 ", "").removesuffix(" ...")
