"""Generated libraries, a large one and many small ones: papers with two names for every term, and citations.

Papers belong to cells, one for each choice of facets, with four to twelve papers each. A paper cites two earlier papers
of its cell (one in small libraries), one that shares a part of its facets, and any other one. A library is a pure
function of its name (seeded generator).

The two names of a term share no word. A query uses the first, and a paper may use either. So a search for the query's
words finds a part of the relevant papers, and citations lead to the rest.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rl_agents.envs.paper_search.library import Paper
from rl_agents.envs.task_sets import shuffled_ids, stored_words

Term = tuple[str, str]

_STORED = stored_words(__file__, "topics.json")


def _terms(kind: str) -> tuple[Term, ...]:
    return tuple((name, other) for name, other in _STORED[kind])


SUBJECTS, METHODS, SETTINGS = _terms("subjects"), _terms("methods"), _terms("settings")
#: Words of the small libraries: a title is a subject and a method. Jargon words are second names of both, assigned
#: differently in each library.
SMALL_SUBJECTS, SMALL_METHODS, SMALL_JARGON = (
    tuple(_STORED["small"][kind]) for kind in ("subjects", "methods", "jargon")
)

#: Increased when generated papers change.
GENERATOR = 1
#: Papers of the large library.
LARGE = 2_000
CELL_SIZES = (4, 12)
OTHER_NAME = 0.35
CITED_IN_CELL, CITED_AKIN, CITED_ANY = 2, 1, 1

SMALL_CELLS, SMALL_CELL_SIZE, SMALL_WORDS = 6, 10, 4
SMALL_OTHER_NAME, SMALL_CITED_IN_CELL = 0.5, 1

_TITLES = (
    "{method} and {subject} {setting}",
    "{subject} {setting}: a study with {method}",
    "{subject} {setting}, seen through {method}",
    "{method} for {subject} {setting}",
)
_OPENINGS = (
    "Much has been written about {subject}, little of it {setting}.",
    "We ask what can be learned of {subject} {setting}.",
    "Until now {subject} have been described by hand.",
)
_MIDDLES = (
    "We use {method} on {count} sites and compare two seasons.",
    "Our approach, {method}, needs {count} hours of work and no special training.",
    "With {method} we follow {count} cases from start to end.",
)
_ENDINGS = (
    "The results hold {setting} and disagree with earlier reports in {count} of them.",
    "Errors fall by {count} percent against the usual practice.",
    "We publish all {count} records and a protocol for others.",
)

Cell = tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A paper without text: its cell, and which of the two names it uses for each facet."""

    cell: Cell
    names: tuple[int, ...]

    @property
    def facets(self) -> tuple[str, ...]:
        """Its topics in the words of queries."""
        return tuple(term[0] for term in self.cell)

    @property
    def wordings(self) -> tuple[str, ...]:
        return tuple(term[name] for term, name in zip(self.cell, self.names, strict=True))


def generated_papers() -> list[Paper]:
    """Return the papers of the large library, with titles and abstracts in sentences, oldest first."""
    rng = random.Random(f"paper_search/generated/{GENERATOR}/{LARGE}")
    drafts: list[Draft] = []
    for cell in _large_cells():
        size = min(rng.randint(*CELL_SIZES), LARGE - len(drafts))
        drafts += [_draft(cell, rng, OTHER_NAME) for _ in range(size)]
        if len(drafts) == LARGE:
            break
    rng.shuffle(drafts)
    ids = [f"G{number:05d}" for number in range(LARGE)]
    cited = _citations(ids, drafts, rng, CITED_IN_CELL)
    return [
        Paper(paper_id, *_sentences(draft, rng), references, draft.facets)
        for paper_id, draft, references in zip(ids, drafts, cited, strict=True)
    ]


def small_papers(number: int) -> list[Paper]:
    """Return the 60 papers of small library ``number``: titles of two words, and ids in random order."""
    rng = random.Random(f"paper_search/small/{GENERATOR}/{number}")
    jargon = rng.sample(SMALL_JARGON, 2 * SMALL_WORDS)
    subjects = list(zip(rng.sample(SMALL_SUBJECTS, SMALL_WORDS), jargon[:SMALL_WORDS], strict=True))
    methods = list(zip(rng.sample(SMALL_METHODS, SMALL_WORDS), jargon[SMALL_WORDS:], strict=True))
    cells = rng.sample(list(itertools.product(subjects, methods)), SMALL_CELLS)
    drafts = [_draft(cell, rng, SMALL_OTHER_NAME) for cell in cells for _ in range(SMALL_CELL_SIZE)]
    rng.shuffle(drafts)
    ids = small_ids()
    rng.shuffle(ids)
    cited = _citations(ids, drafts, rng, SMALL_CITED_IN_CELL)
    return [
        Paper(paper_id, " ".join(draft.wordings), "", references, draft.facets)
        for paper_id, draft, references in zip(ids, drafts, cited, strict=True)
    ]


def small_ids() -> list[str]:
    return [f"p{number:02d}" for number in range(SMALL_CELLS * SMALL_CELL_SIZE)]


def _large_cells() -> list[Cell]:
    """Return all cells in random order; of ten terms of each kind, a cell shares two facets with a few others."""
    places = itertools.product(range(len(SUBJECTS)), range(len(METHODS)), range(len(SETTINGS)))
    names = {f"{a}/{b}/{s}": (SUBJECTS[a], METHODS[b], SETTINGS[s]) for a, b, s in places}
    return [names[name] for name in shuffled_ids(names, f"paper_search/cells/{GENERATOR}")]


def _draft(cell: Cell, rng: random.Random, other_name: float) -> Draft:
    return Draft(cell, tuple(int(rng.random() < other_name) for _ in cell))


def _citations(
    ids: Sequence[str], drafts: Sequence[Draft], rng: random.Random, in_cell: int
) -> Iterator[tuple[str, ...]]:
    by_cell: dict[Cell, list[str]] = {}
    by_part: dict[Cell, list[str]] = {}
    for place, (paper_id, draft) in enumerate(zip(ids, drafts, strict=True)):
        parts = list(itertools.combinations(draft.cell, max(1, len(draft.cell) - 1)))
        mates, akin = by_cell.setdefault(draft.cell, []), by_part.setdefault(rng.choice(parts), [])
        cited = [*_some(mates, in_cell, rng), *_some(akin, CITED_AKIN, rng)]
        cited += [ids[rng.randrange(place)] for _ in range(CITED_ANY) if place]
        yield tuple(dict.fromkeys(cited))
        mates.append(paper_id)
        for part in parts:
            by_part.setdefault(part, []).append(paper_id)


def _some(items: Sequence[str], count: int, rng: random.Random) -> list[str]:
    return rng.sample(items, min(count, len(items)))


def _sentences(draft: Draft, rng: random.Random) -> tuple[str, str]:
    words: Mapping[str, str] = dict(zip(("subject", "method", "setting"), draft.wordings, strict=True))
    parts = [rng.choice(choices) for choices in (_OPENINGS, _MIDDLES, _ENDINGS)]
    abstract = " ".join(part.format(**words, count=rng.randint(3, 60)) for part in parts)
    title = rng.choice(_TITLES).format(**words)
    return title[0].upper() + title[1:], abstract
