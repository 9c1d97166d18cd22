"""docs/research/speed.md and its appendix match the result files."""

from __future__ import annotations

from benchmarks import speed_page


def test_the_page_and_its_appendix_are_those_of_the_results() -> None:
    found, page = speed_page.rows(), speed_page.PAGE.read_text(encoding="utf-8")
    assert page == speed_page.filled(page, found), "python -m benchmarks.speed_page"
    assert str(speed_page.shown(found)[0]) in page and speed_page.PICTURE.is_file()
    assert speed_page.APPENDIX.read_text(encoding="utf-8") == speed_page.appendix(found)
