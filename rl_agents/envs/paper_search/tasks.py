"""The sources of papers and queries, and their train and test tasks.

A generated task is a pure function of its id; its relevant papers are those with all facets in the query. A folder has
tables ``papers``, ``train``, ``test``, whose texts become an index in the cache at the first use, and its citations
another file.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.row_cache import keep
from rl_agents.data.tables import fingerprint, table_files
from rl_agents.envs.paper_search import PaperSearchOptions
from rl_agents.envs.paper_search.generated import SETTINGS, generated_papers, small_papers
from rl_agents.envs.paper_search.library import Library, Paper, Task, citation_links, read_papers, read_queries
from rl_agents.envs.task_sets import held_out, unknown_task
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore

SMALL_LIBRARIES, SMALL_TEST_LIBRARIES = 300, 40
TEST_SHARE = 5
#: Number of relevant papers of a query with two of the three facets.
BROAD = (5, 25)
_SETTING_NAMES = frozenset(names[0] for names in SETTINGS)
_WORDINGS = (
    "Find papers on {facets}.",
    "Which work is there on {facets}?",
    "I am looking for studies of {facets}.",
    "Literature about {facets}, please.",
)


class GeneratedPapers:
    """One generated library; a task id is ``generated/<split>/<number>``."""

    def __init__(self) -> None:
        self.papers = generated_papers()
        wanted = _queries(self.papers)
        numbers = [str(number) for number in range(len(wanted))]
        splits = held_out(numbers, "paper_search/generated", len(wanted) // TEST_SHARE)
        self._wanted = {f"generated/{s}/{int(n):04d}": wanted[int(n)] for s, names in splits.items() for n in names}
        self._by_facet: dict[str, set[str]] = {}
        for paper in self.papers:
            for facet in paper.facets:
                self._by_facet.setdefault(facet, set()).add(paper.paper_id)
        self._library = Library.in_memory(self.papers)

    def task_ids(self, split: str) -> Sequence[str]:
        return sorted(name for name in self._wanted if name.split("/")[1] == split)

    def task(self, task_id: str) -> Task:
        if task_id not in self._wanted:
            raise unknown_task("paper_search", task_id, self.task_ids("test"), "generated/<split>/<number>")
        wanted = self._wanted[task_id]
        relevant = frozenset.intersection(*(frozenset(self._by_facet[facet]) for facet in wanted))
        rng = random.Random(f"paper_search/{task_id}")
        query = rng.choice(_WORDINGS).format(facets=_phrase(wanted))
        return Task(task_id, query, relevant, wanted)

    def library(self, task_id: str) -> Library:
        return self._library


class SmallPapers:
    """Many small libraries; a task id is ``small/<split>/<library>-<query>``."""

    def __init__(self) -> None:
        names = [f"{number:03d}" for number in range(SMALL_LIBRARIES)]
        self._splits = held_out(names, "paper_search/small", SMALL_TEST_LIBRARIES)

    def task_ids(self, split: str) -> Sequence[str]:
        return [
            f"small/{split}/{name}-{place:02d}"
            for name in self._splits[split]
            for place in range(len(_small_queries(int(name))))
        ]

    def task(self, task_id: str) -> Task:
        match = re.fullmatch(r"small/(train|test)/(\d{3})-(\d\d)", task_id, re.ASCII)
        queries = _small_queries(int(match[2])) if match and match[2] in self._splits[match[1]] else ()
        if match is None or int(match[3]) >= len(queries):
            raise unknown_task("paper_search", task_id, self.task_ids("test"), "small/<split>/<library>-<query>")
        wanted = queries[int(match[3])]
        papers = _small_library(int(match[2]))
        relevant = frozenset(paper.paper_id for paper in papers if paper.facets == wanted)
        return Task(task_id, " ".join(wanted), relevant, wanted)

    def library(self, task_id: str) -> Library:
        return _small_searched(int(task_id.split("/")[-1].split("-")[0]))


PAPERS, SPLITS = "papers", ("train", "test")
#: Increased when the same file gives another index.
FORMAT = 2


class FolderPapers:
    """The papers and queries of a folder; a task id is ``<split>/<query id>``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / PAPERS
        self._tasks = {name: task for split in SPLITS for name, task in read_queries(folder / split, split).items()}
        version = f"{FORMAT}/{fingerprint(table_files(str(self._path)))}"
        store = PassageStore.cached(f"papers-{folder.name}", version, self._passages)
        links = keep(f"papers-{folder.name}", f"citations/{version}", self._links, "paper").get
        self._library = Library(store, links)
        if not any(paper in store for task in self._tasks.values() for paper in task.relevant):
            example = min(next(iter(self._tasks.values())).relevant)
            raise InputError(
                f"{folder}: no relevant paper of any query is among the {PAPERS}; the first is called '{example}'"
            )

    def task_ids(self, split: str) -> Sequence[str]:
        return [name for name in self._tasks if name.startswith(f"{split}/")]

    def task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            raise unknown_task("paper_search", task_id, self._tasks, "<split>/<query id>")
        return self._tasks[task_id]

    def library(self, task_id: str) -> Library:
        return self._library

    def _passages(self) -> Iterator[tuple[Passage, float]]:
        for (paper, _), share in read_papers(self._path):
            yield paper.passage, share

    def _links(self) -> Iterator[tuple[str, str, Any]]:
        """Read the file twice: first every id of a paper, then the references."""
        own: dict[str, str] = {}
        others: dict[str, str] = {}
        for (paper, other), _ in read_papers(self._path):
            own[paper.paper_id] = paper.paper_id
            if other:
                others[other] = paper.paper_id
        papers = (paper for (paper, _), _ in read_papers(self._path))
        for name, links in citation_links(papers, {**others, **own}).items():
            yield name, "", links


@lru_cache(maxsize=2)
def _folder(folder: Path, version: str) -> FolderPapers:
    return FolderPapers(folder)


#: A source of tasks and of the libraries to search. An unknown task raises `InputError` with the nearest.
Papers = FolderPapers | GeneratedPapers | SmallPapers


def find_papers(options: PaperSearchOptions) -> Papers:
    """Return the source in the key ``env.papers``. The files of a folder are read again if they have changed."""
    name = options.papers
    if name in ("generated", "small"):
        return _generated() if name == "generated" else _small()
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise InputError(f"env.papers={name}: valid: generated, small, an existing folder")
    return _folder(
        folder, fingerprint([path for name in (PAPERS, *SPLITS) for path in table_files(str(folder / name))])
    )


def task_ids(split: str, options: PaperSearchOptions) -> list[str]:
    return list(find_papers(options).task_ids(split))


_generated, _small = cache(GeneratedPapers), cache(SmallPapers)


@lru_cache(maxsize=SMALL_LIBRARIES)
def _small_library(number: int) -> tuple[Paper, ...]:
    return tuple(small_papers(number))


@lru_cache(maxsize=SMALL_LIBRARIES)
def _small_searched(number: int) -> Library:
    return Library.in_memory(_small_library(number))


@lru_cache(maxsize=SMALL_LIBRARIES)
def _small_queries(number: int) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted({paper.facets for paper in _small_library(number)}))


def _queries(papers: Iterable[Paper]) -> list[tuple[str, ...]]:
    """Return the facets of queries: those of every cell, and pairs of facets that a fair number of papers share."""
    cells = Counter(paper.facets for paper in papers)
    pairs: Counter[tuple[str, ...]] = Counter()
    for cell, size in cells.items():
        for pair in itertools.combinations(cell, 2):
            pairs[pair] += size
    broad = [pair for pair, size in pairs.items() if BROAD[0] <= size <= BROAD[1]]
    return sorted([*cells, *broad])


def _phrase(wanted: Sequence[str]) -> str:
    """Join facets; a setting, such as ``in walled towns``, follows directly."""
    things = [facet for facet in wanted if facet not in _SETTING_NAMES]
    return " ".join([" with ".join(things), *(facet for facet in wanted if facet in _SETTING_NAMES)])
