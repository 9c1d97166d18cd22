"""The numbers of README and docs/research in text and in tables that no program writes are those of the results."""

from pathlib import Path

import pytest

from benchmarks.doc_numbers import blocks, numbers, pages, unbound, wrong
from benchmarks.doc_records import RECORDS


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.stem)
def test_every_number_has_a_record_or_its_block_says_that_there_is_none(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    assert unbound(page, path.name) == [], "a mark for each: see benchmarks/doc_numbers.py"
    assert wrong(page, RECORDS, path.name) == []


def test_every_record_has_a_place() -> None:
    marks = {block.mark for path in pages() for block in blocks(path.read_text(encoding="utf-8"), path.name)}
    assert marks - {"", None} == RECORDS.keys()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("+0.20 [0.10, .3], 15 to\n22% of 3.5 k, 3.2e-5", ["+0.20", "0.10", ".3", "15 to 22%", "3.5 k", "3.2e-5"]),
        ("0.1 to 20 M parameters, 1.5B, `lr=0.5`, λ = 0.7, 95%, [x](y-0.5.md), 2606.09961, Python 3.11 to 3.13", []),
        ("after 22.5 k environment steps, 0.4 after 1.2.3", ["0.4"]),
    ],
)
def test_what_counts_as_a_measured_number(text: str, found: list[str]) -> None:
    assert numbers(text) == found


PAGE = """# Page

The ratio is 0.96.<!-- record: ratio -->

| a | 0.4 |

- no numbers
- 0.5<!-- no record -->

## Old

Not on file.<!-- no record in this section -->

### Older

0.7, and 0.8.

0.97<!-- record: ratio -->

## New

    0.9
<!-- table: x -->
| 0.1 |
<!-- end of table -->
It was 0.2.
"""


def test_blocks_without_a_mark_and_numbers_of_others_are_found() -> None:
    assert [line.rpartition(": ")[2] for line in unbound(PAGE, "p")] == ["['0.4']", "['0.2']"]
    (one,) = wrong(PAGE, {"ratio": lambda: "0.96"}, "p")
    assert one.endswith("['0.97'], on record: ['0.96']")
