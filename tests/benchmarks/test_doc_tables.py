"""The docs' tables equal those made from the result files."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import doc_tables, equal_steps_page
from benchmarks.grid import RESULTS

PAGES = [path for path in doc_tables.pages() if doc_tables.named(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_are_those_of_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == doc_tables.filled(text, doc_tables.TABLES), "python -m benchmarks.doc_tables"


def test_every_table_has_a_place_and_every_mark_a_table() -> None:
    marked = {name for path in PAGES for name in doc_tables.named(path.read_text(encoding="utf-8"))}
    assert marked == {*doc_tables.TABLES, equal_steps_page.OVERVIEW}


def test_a_mark_without_its_end_is_noticed() -> None:
    for path in doc_tables.pages():
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- table:") == text.count("<!-- end of table -->") == len(doc_tables.named(text)), path


def test_only_what_stands_between_the_marks_is_written() -> None:
    text = (
        "before\n<!-- table: a -->\nold\n<!-- end of table -->\n<!-- table: b -->\nstays\n<!-- end of table -->\nafter"
    )
    assert doc_tables.filled(text, {"a": lambda: "| new |"}) == text.replace("old", "| new |")


def test_names_lose_what_the_page_says() -> None:
    table = doc_tables.TABLES["t3"]
    assert isinstance(table, doc_tables.Table)
    assert table.shown("grpo + T3, consistent, force_answer, k=1") == "grpo + T3, k=1"
    assert len({name for name, _ in table.arms()}) == len(doc_tables.on_file("t3")), "two arms with one name"
    assert all((RESULTS / f"{file}.json").is_file() for file in table.sources)
