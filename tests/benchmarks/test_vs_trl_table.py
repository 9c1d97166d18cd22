"""docs/research/speed.md's table on TRL is that of the results on file."""

from __future__ import annotations

from benchmarks.vs_trl.__main__ import ROOT, table


def test_the_table_is_that_of_the_results() -> None:
    page = (ROOT / "docs" / "research" / "speed.md").read_text(encoding="utf-8")
    assert table() in page, "python -m benchmarks.vs_trl --table"
