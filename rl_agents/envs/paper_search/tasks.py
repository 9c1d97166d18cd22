"""Where papers and queries come from, and which queries are train and which test tasks.

| ``env.papers`` | what |
|---|---|
| ``generated`` | one library of 2,000 papers, and its queries |
| ``generated:N`` | one of N papers, up to 100,000 |
| ``small`` | 300 libraries of 60 papers in two words each, with 6 queries each, for the warm-start model |
| a folder | ``papers.jsonl``, ``train.jsonl``, ``test.jsonl``; see `folder` |

A generated task is a pure function of its id. Its relevant papers are those that have all facets that the query names.
``panel.json`` holds the hashes of all tasks and papers of ``generated`` and ``small``.
"""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path

from rl_agents.envs.options import RetrieverKeys
from rl_agents.envs.panels import check_split, shuffled_ids, unknown_task
from rl_agents.envs.paper_search import PaperSearchOptions
from rl_agents.envs.paper_search.folder import FolderPapers, open_folder
from rl_agents.envs.paper_search.generated import SETTINGS, generated_papers, small_papers
from rl_agents.envs.paper_search.library import Library, Paper, Task
from rl_agents.errors import InputError

GENERATED_PAPERS, MIN_GENERATED, MAX_GENERATED = 2_000, 100, 100_000
SMALL_LIBRARIES, SMALL_TEST_LIBRARIES = 300, 40
TEST_SHARE = 5
#: Relevant papers of a query that names two facets of three.
BROAD = (5, 25)
_SETTING_NAMES = frozenset(names[0] for names in SETTINGS)
_WORDINGS = (
    "Find papers on {facets}.",
    "Which work is there on {facets}?",
    "I am looking for studies of {facets}.",
    "Literature about {facets}, please.",
)


class GeneratedPapers:
    """One generated library; a task id is ``generated:N/<split>/<number>``, without ``:N`` for 2,000 papers."""

    def __init__(self, count: int) -> None:
        self._name = "generated" if count == GENERATED_PAPERS else f"generated:{count}"
        self.papers = generated_papers(count)
        wanted = _queries(self.papers)
        order = shuffled_ids(map(str, range(len(wanted))), f"paper_search/{self._name}")
        test = set(order[: len(order) // TEST_SHARE])
        self._wanted = {f"{self._name}/{'test' if n in test else 'train'}/{int(n):04d}": wanted[int(n)] for n in order}
        self._by_facet: dict[str, set[str]] = {}
        for paper in self.papers:
            for facet in paper.facets:
                self._by_facet.setdefault(facet, set()).add(paper.paper_id)
        self._library = lru_cache(maxsize=2)(lambda retrieval: Library.in_memory(self.papers, retrieval))

    def task_ids(self, split: str) -> Sequence[str]:
        return sorted(name for name in self._wanted if name.split("/")[1] == split)

    def task(self, task_id: str) -> Task:
        if task_id not in self._wanted:
            raise unknown_task("paper_search", task_id, self.task_ids("test"), f"{self._name}/<split>/<number>")
        wanted = self._wanted[task_id]
        relevant = frozenset.intersection(*(frozenset(self._by_facet[facet]) for facet in wanted))
        rng = random.Random(f"paper_search/{task_id}")
        query = rng.choice(_WORDINGS).format(facets=_phrase(wanted))
        return Task(task_id, query, relevant, wanted)

    def library(self, task_id: str, retrieval: RetrieverKeys) -> Library:
        return self._library(retrieval)


class SmallPapers:
    """Many small libraries; a task id is ``small/<split>/<library>-<query>``."""

    def __init__(self) -> None:
        names = [f"{number:03d}" for number in range(SMALL_LIBRARIES)]
        test = set(shuffled_ids(names, "paper_search/small")[:SMALL_TEST_LIBRARIES])
        self._splits = {name: "test" if name in test else "train" for name in names}
        self._built = lru_cache(maxsize=SMALL_LIBRARIES)(self._build)

    def task_ids(self, split: str) -> Sequence[str]:
        return [
            f"small/{split}/{name}-{place:02d}"
            for name, where in self._splits.items()
            if where == split
            for place in range(len(_small_queries(int(name))))
        ]

    def task(self, task_id: str) -> Task:
        match = re.fullmatch(r"small/(train|test)/(\d{3})-(\d\d)", task_id)
        queries = _small_queries(int(match[2])) if match and self._splits.get(match[2]) == match[1] else ()
        if match is None or int(match[3]) >= len(queries):
            raise unknown_task("paper_search", task_id, self.task_ids("test"), "small/<split>/<library>-<query>")
        wanted = queries[int(match[3])]
        papers = _small_library(int(match[2]))
        relevant = frozenset(paper.paper_id for paper in papers if paper.facets == wanted)
        return Task(task_id, " ".join(wanted), relevant, wanted)

    def library(self, task_id: str, retrieval: RetrieverKeys) -> Library:
        return self._built(int(task_id.split("/")[-1].split("-")[0]), retrieval)

    @staticmethod
    def _build(number: int, retrieval: RetrieverKeys) -> Library:
        return Library.in_memory(_small_library(number), retrieval)


#: A source of tasks with the libraries that they are searched in; an unknown task raises `InputError` with the nearest.
Papers = FolderPapers | GeneratedPapers | SmallPapers


def find_papers(options: PaperSearchOptions) -> Papers:
    """Return the source that the key ``env.papers`` names.

    Raises:
        InputError: no such folder, a file that is missing or wrong, or a number out of range.
    """
    name = options.papers
    if name == "small":
        return _small()
    if match := re.fullmatch(r"generated(?::(\d{1,9}))?", name):
        count = int(match[1] or GENERATED_PAPERS)
        if not MIN_GENERATED <= count <= MAX_GENERATED:
            raise InputError(f"env.papers={name}: from {MIN_GENERATED} to {MAX_GENERATED} papers")
        return _generated(count)
    if not Path(name).expanduser().is_dir():
        raise InputError(f"env.papers={name}: valid: generated, generated:N, small, a folder that exists")
    return open_folder(Path(name).expanduser())


def task_ids(split: str, options: PaperSearchOptions) -> list[str]:
    """Return the ``train`` or ``test`` ids of a source.

    Raises:
        InputError: unknown split, or see `find_papers`.
    """
    check_split(split, {"train": (), "test": ()})
    return list(find_papers(options).task_ids(split))


_generated, _small = lru_cache(maxsize=2)(GeneratedPapers), cache(SmallPapers)


@lru_cache(maxsize=SMALL_LIBRARIES)
def _small_library(number: int) -> tuple[Paper, ...]:
    return tuple(small_papers(number))


@lru_cache(maxsize=SMALL_LIBRARIES)
def _small_queries(number: int) -> tuple[tuple[str, ...], ...]:
    return tuple(sorted({paper.facets for paper in _small_library(number)}))


def _queries(papers: Iterable[Paper]) -> list[tuple[str, ...]]:
    """Return the facets that queries want: of every cell, and every two facets that a fair number of papers share."""
    cells = Counter(paper.facets for paper in papers)
    pairs: Counter[tuple[str, ...]] = Counter()
    for cell, size in cells.items():
        for pair in itertools.combinations(cell, 2):
            pairs[pair] += size
    broad = [pair for pair, size in pairs.items() if BROAD[0] <= size <= BROAD[1]]
    return sorted([*cells, *broad])


def _phrase(wanted: Sequence[str]) -> str:
    """Join facets; a setting, such as ``in walled towns``, follows without a word between."""
    things = [facet for facet in wanted if facet not in _SETTING_NAMES]
    return " ".join([" with ".join(things), *(facet for facet in wanted if facet in _SETTING_NAMES)])
