"""A library: papers, the citations between them, and retrieval over their titles and abstracts; and what is asked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rl_agents.envs.options import RetrieverKeys
from rl_agents.envs.paper_search.citations import Citations
from rl_agents.envs.retrievers import retriever_over
from rl_agents.retrieval.passages import Passage, PassageStore
from rl_agents.retrieval.retriever import Retriever


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper.

    Attributes:
        references: ids of the papers that it cites.
        facets: what it is about, in the queries' words; only of generated papers, and never shown.
    """

    paper_id: str
    title: str
    abstract: str
    references: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()

    @property
    def passage(self) -> Passage:
        """What a search reads of it."""
        return Passage(self.paper_id, self.title, self.abstract)


@dataclass(frozen=True)
class Library:
    """Papers with their texts, citations and retrieval.

    Attributes:
        facets: of generated papers, by id.
    """

    store: PassageStore
    citations: Citations
    retriever: Retriever
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def in_memory(cls, papers: Iterable[Paper], retrieval: RetrieverKeys) -> Library:
        """Build a library of papers that fit in memory.

        Raises:
            InputError: two papers of one id, or no such retrieval.
        """
        papers = list(papers)
        store = PassageStore.build(paper.passage for paper in papers)
        rows = {paper.paper_id: row for row, paper in enumerate(papers)}
        citations = Citations.build(list(rows), citation_pairs(papers, rows))
        return cls(store, citations, retriever_over(store, retrieval), {p.paper_id: p.facets for p in papers})

    def __len__(self) -> int:
        return len(self.store)

    def __contains__(self, paper_id: object) -> bool:
        return paper_id in self.citations

    def paper(self, paper_id: str) -> Passage:
        """Return title and abstract of a paper of the library."""
        return self.store.get(paper_id)

    def search(self, query: str, count: int) -> list[str]:
        """Return the ids of the best ``count`` papers for a query, best first; its text is data, never syntax."""
        return [hit.passage.id for hit in self.retriever.search(query, count)]

    def neighbors(self, paper_id: str, citing: int, references: int) -> list[str]:
        """Return up to ``citing`` papers that cite a paper, then up to ``references`` that it cites."""
        found = [*self.citations.citing_papers(paper_id, citing), *self.citations.cited_by(paper_id, references)]
        return list(dict.fromkeys(found))


def citation_pairs(papers: Iterable[Paper], rows: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Yield (citing, cited) for the references inside the library; papers in their order, no pair twice.

    Args:
        rows: the place of every paper, by each of its ids.
    """
    for paper in papers:
        row = rows[paper.paper_id]
        cited = dict.fromkeys(rows[name] for name in paper.references if name in rows)
        yield from ((row, other) for other in cited if other != row)


@dataclass(frozen=True, slots=True)
class Task:
    """One query.

    Attributes:
        relevant: ids of the annotated papers.
        wanted: the facets that a relevant paper has; only of generated tasks.
    """

    task_id: str
    query: str
    relevant: frozenset[str]
    wanted: tuple[str, ...] = ()


class Papers(Protocol):
    """A source of tasks with the libraries that they are searched in."""

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the tasks of ``train`` or ``test``."""
        ...

    def task(self, task_id: str) -> Task:
        """Return a task.

        Raises:
            InputError: unknown id; the message offers the nearest.
        """
        ...

    def library(self, task_id: str, retrieval: RetrieverKeys) -> Library:
        """Return the library of a task."""
        ...
