"""The docs' tables equal those made from the result files."""

from pathlib import Path

import pytest

from benchmarks import doc_tables

PAGES = [path for path in doc_tables.pages() if doc_tables.named(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_tables_are_those_of_the_results(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text == doc_tables.filled(text, doc_tables.TABLES), "python -m benchmarks.doc_tables"


def test_every_table_has_a_place_and_every_mark_a_table() -> None:
    marked = {name for path in PAGES for name in doc_tables.named(path.read_text(encoding="utf-8"))}
    assert marked == doc_tables.TABLES.keys()


def test_only_what_stands_between_the_marks_is_written() -> None:
    text = (
        "before\n<!-- table: a -->\nold\n<!-- end of table -->\n<!-- table: b -->\nstays\n<!-- end of table -->\nafter"
    )
    assert doc_tables.filled(text, {"a": lambda: "| new |"}) == text.replace("old", "| new |")
