"""docs/research/speed.md and its appendix match the result files."""

from benchmarks import speed_page
from benchmarks.vs_trl import __main__ as vs_trl


def test_the_page_and_its_appendix_are_those_of_the_results() -> None:
    found, page = speed_page.rows(), speed_page.PAGE.read_text(encoding="utf-8")
    assert page == speed_page.filled(page, found), "python -m benchmarks.speed_page"
    assert str(speed_page.shown(found)[0]) in page and speed_page.PICTURE.is_file()
    appendix = speed_page.APPENDIX.read_text(encoding="utf-8")
    assert appendix == speed_page.appendix(found), "python -m benchmarks.speed_page"
    assert all(str(line) in appendix for line in found) and vs_trl.table() in appendix
