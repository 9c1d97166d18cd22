"""Numbers in the text of README and docs/research: each is bound to a record, or its block says that there is none.

A block (paragraph, list item, or table that no program writes) with a measured number has a mark:

    The ratio is 0.96.<!-- record: rollouts -->     compared with `benchmarks.doc_records.RECORDS`
    <!-- no record -->                              a setting, or the block says that it is not on file
    <!-- no record in this section -->              until the next heading of this rank

`unbound` finds blocks without a mark, and `wrong` those whose numbers are not those of the record, in this order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: The tables between marks are compared elsewhere.
TABLES = re.compile(r"<!-- (table: .+?|speed|results figure: .+?) -->\n.*?<!-- end of .+? -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```|^ {4,}[^\s-].*?$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!--\s+(?:record:\s+(?P<name>[^>]+?)|no\s+record(?P<section>\s+in\s+this\s+section)?)\s+-->")
#: No measurements: code, targets of links, comments, sizes of models, values of settings, sizes of intervals, versions.
IGNORED = re.compile(
    r"`[^`]*`|\]\([^)]*\)|<[^>]*>|[\d.]+(?: to [\d.]+)? (?:M|B|million|billion)\b|[\d.]+B\b|[^\W\d] ?[=<≥] ?[\d.]+"
    r"|\b9[05]%|[Aa]fter [\d.]+ k environment steps|\bPython [\d.]+(?: to [\d.]+)?|\d+\.\d+\.\d+|\b\d{4}\.\d{5}\b"
    r"|Apache-2\.0"
)
NUMBER = re.compile(r"(?<![\w.,])(?:\d+\s+to\s+)?[+-]?(?:(?:\d[\d,]*)?\.\d+(?:e-?\d+)?(?:%| k\b)?|\d+(?:%| k\b))")


@dataclass(frozen=True)
class Block:
    """A block of a page; ``mark``: name of its record; empty: it needs none; None: it has no mark."""

    place: str
    text: str
    mark: str | None

    @property
    def numbers(self) -> list[str]:
        return numbers(self.text)


def numbers(text: str) -> list[str]:
    """Return the measured numbers of a text: decimals, percentages, thousands (44 k).

    >>> numbers("With 0.1 M parameters: +0.20 [0.10, .3], 22% of 3.5 k (`lr=0.5`, λ = 0.7)")
    ['+0.20', '0.10', '.3', '22%', '3.5 k']
    """
    return [" ".join(found.split()) for found in NUMBER.findall(IGNORED.sub(" ", text))]


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "docs" / "algorithms" / "README.md",
        *sorted((ROOT / "docs" / "research").glob("*.md")),
    ]


def blocks(page: str, name: str = "") -> Iterator[Block]:
    """Yield the blocks of a page that contain measured numbers."""
    page = CODE.sub("", TABLES.sub("", page))
    excused = depth = 0
    for text in re.split(r"\n\n+|\n(?= *(?:[-*]|\d+\.) )", page):
        if heading := re.match(r"(#+) ", text):
            depth = len(heading[1])
            excused = excused if excused < depth else 0
        mark = MARK.search(text)
        if mark and mark["section"]:
            excused = depth
        if numbers(text):
            named = " ".join(mark["name"].split()) if mark and mark["name"] else ""
            found = named if named or excused or mark else None
            yield Block(f"{name}: {text.strip()[:60]!r}", text, found)


def unbound(page: str, name: str = "") -> list[str]:
    return [f"{block.place}: {block.numbers}" for block in blocks(page, name) if block.mark is None]


def wrong(page: str, records: Mapping[str, Callable[[], str]], name: str = "") -> list[str]:
    """Return the blocks whose numbers are not those of their record."""
    return [
        f"{block.place}: {block.numbers}, on record: {recorded}"
        for block in blocks(page, name)
        if block.mark
        for recorded in [numbers(records[block.mark]())]
        if recorded != block.numbers
    ]
