"""A library: papers, the citations between them, and retrieval over their titles and abstracts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rl_agents.envs.paper_search.citations import Citations
from rl_agents.retrieval.passages import Passage, PassageStore
from rl_agents.retrieval.retriever import Retriever, make_retriever


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


@dataclass(frozen=True, slots=True)
class Retrieval:
    """How papers are found: the keys ``env.retriever``, ``env.retriever_model`` and prefixes; see `make_retriever`."""

    kind: str = "bm25"
    retriever_model: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""

    def over(self, store: PassageStore) -> Retriever:
        """Return the retriever.

        Raises:
            InputError: unknown kind, or no usable model for a dense one.
        """
        prefixes = {"query_prefix": self.query_prefix, "passage_prefix": self.passage_prefix}
        return make_retriever(store, self.kind, model=self.retriever_model, key="env.retriever_model", **prefixes)


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
    def in_memory(cls, papers: Iterable[Paper], retrieval: Retrieval) -> Library:
        """Build a library of papers that fit in memory.

        Raises:
            InputError: two papers of one id, or no such retrieval.
        """
        papers = list(papers)
        store = PassageStore.build(paper.passage for paper in papers)
        rows = {paper.paper_id: row for row, paper in enumerate(papers)}
        citations = Citations.build(list(rows), citation_pairs(papers, rows))
        return cls(store, citations, retrieval.over(store), {p.paper_id: p.facets for p in papers})

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

    def neighbours(self, paper_id: str, citing: int, references: int) -> list[str]:
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
