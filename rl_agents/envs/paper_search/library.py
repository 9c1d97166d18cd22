"""Papers and queries, how they are read from files, and a library: papers with citations.

A paper in a file has the form of Semantic Scholar:

    {"paperId": "649def34...", "title": "...", "abstract": "...", "externalIds": {"ArXiv": "1706.03762"},
     "references": [{"paperId": "..."}, "..."]}

``references`` has ids, or objects with a ``paperId``; null entries are skipped. The arXiv id of a paper replaces its
``paperId``, as in StepPO, and references may use either. A query is

    {"id": "q1", "query": "...", "relevant": ["1706.03762", ...]}

or has PaSa's names ``qid``, ``question`` and ``answer_arxiv_id``. Other keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rl_agents.data.tables import object_of, open_table, text_of
from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import clean_text
from rl_agents.retrieval.passages import Passage, PassageStore
from rl_agents.tools.strict_json import written

MAX_TITLE, MAX_ABSTRACT, MAX_QUERY = 2_000, 20_000, 2_000
MAX_REFERENCES, MAX_RELEVANT = 10_000, 10_000
#: Printable ASCII without quotes and angle brackets, which a call could not contain.
_ID = re.compile(r"[!#-&(-;=?-~]{1,64}")

T = TypeVar("T")
#: For each paper: the papers that cite it, and those that it cites.
Links = dict[str, tuple[list[str], list[str]]]


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper; ``facets`` are its topics in the words of queries, only of generated papers, and never shown."""

    paper_id: str
    title: str
    abstract: str
    references: tuple[str, ...] = ()
    facets: tuple[str, ...] = ()

    @property
    def passage(self) -> Passage:
        return Passage(self.paper_id, self.title, self.abstract)


@dataclass(frozen=True, slots=True)
class Task:
    """A query and its annotated papers; ``wanted`` are the facets of a relevant paper, only of generated tasks."""

    task_id: str
    query: str
    relevant: frozenset[str]
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Library:
    """Papers with their texts and citations.

    Attributes:
        links: paper id -> (ids of the papers that cite it, ids of the papers that it cites).
        facets: of generated papers, by id.
    """

    store: PassageStore
    links: Callable[[str], Sequence[Sequence[str]]]
    facets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def in_memory(cls, papers: Sequence[Paper]) -> Library:
        store = PassageStore.build(paper.passage for paper in papers)
        links = citation_links(papers, {paper.paper_id: paper.paper_id for paper in papers})
        return cls(store, links.__getitem__, {p.paper_id: p.facets for p in papers})

    def __len__(self) -> int:
        return len(self.store)

    def __contains__(self, paper_id: object) -> bool:
        return paper_id in self.store

    def search(self, query: str, count: int) -> list[str]:
        """Return the ids of the best ``count`` papers for a query, best first. The query is data, never syntax."""
        return [hit.passage.id for hit in self.store.search(query, count)]

    def neighbors(self, paper_id: str, citing: int, references: int) -> list[str]:
        """Return up to ``citing`` papers that cite a paper, then up to ``references`` that it cites."""
        if paper_id not in self:
            return []
        cited_by, cites = self.links(paper_id)
        return list(dict.fromkeys([*cited_by[:citing], *cites[:references]]))


def citation_links(papers: Iterable[Paper], ids: Mapping[str, str]) -> Links:
    """Collect the citations within a library, each once. Unknown references and those to itself do not count.

    Args:
        ids: any id of a paper -> its id in the library.
    """
    links: Links = {name: ([], []) for name in ids.values()}
    for paper in papers:
        for other in dict.fromkeys(ids[name] for name in paper.references if name in ids):
            if other != paper.paper_id:
                links[paper.paper_id][1].append(other)
                links[other][0].append(paper.paper_id)
    return links


def read_papers(path: Path) -> Iterator[tuple[tuple[Paper, str], float]]:
    """Yield papers in order, each with another id for references (or an empty text), and the share of the file read."""
    return _read(path, lambda record, number: _paper(record))


def read_queries(path: Path, split: str) -> dict[str, Task]:
    """Return the queries of a file by ``<split>/<id>``. The id of a query without one is its place, from 1."""
    found: dict[str, Task] = {}
    for (name, query, relevant), _ in _read(path, _query):
        task_id = f"{split}/{name}"
        if task_id in found:
            raise InputError(f"{path}: two queries with the id '{name}'")
        found[task_id] = Task(task_id, query, relevant)
    if not found:
        raise InputError(f"{path}: no usable query in it")
    return found


def _read(path: Path, parse: Callable[[Any, int], T]) -> Iterator[tuple[T, float]]:
    for count, row in enumerate(open_table(path), start=1):
        try:
            yield parse(row.record(), count), row.share
        except ValueError as error:
            raise InputError(f"{row.place}: {error}") from None


def _paper(record: Any) -> tuple[Paper, str]:
    record = object_of(record, "a paper")
    paper_id = _identifier(record, "paperId")
    external = object_of(record.get("externalIds") or {}, "externalIds")
    arxiv = _identifier(external, "ArXiv") if external.get("ArXiv") is not None else ""
    references = tuple(_reference(item) for item in _list(record, "references", MAX_REFERENCES) if item is not None)
    paper = Paper(
        arxiv or paper_id,
        " ".join(clean_text(text_of(record, "title", MAX_TITLE)).split()),
        clean_text(text_of({"abstract": "", **record}, "abstract", MAX_ABSTRACT, 0)).strip(),
        tuple(name for name in references if name),
    )
    return paper, paper_id if arxiv and arxiv != paper_id else ""


def _reference(item: Any) -> str:
    """Return the id of a reference; empty if Semantic Scholar does not know it (``paperId`` null)."""
    name = item.get("paperId") if isinstance(item, Mapping) else item
    if name is None:
        return ""
    if not isinstance(name, str):
        raise ValueError(f"a reference is {type(item).__name__}, neither an id nor an object with paperId")
    return name


def _query(record: Any, number: int) -> tuple[str, str, frozenset[str]]:
    record = object_of(record, "a query")
    name = record.get("id", record.get("qid", number))
    if not isinstance(name, str | int) or isinstance(name, bool) or not _ID.fullmatch(str(name)):
        raise ValueError(f"id is {name!a:.80}, not a short text or a number")
    listed = _list(record, "relevant" if "relevant" in record else "answer_arxiv_id", MAX_RELEVANT)
    relevant = [written(item) for item in listed]
    if not relevant or not all(isinstance(item, str) for item in relevant):
        raise ValueError("'relevant' is not a list of at least one paper id")
    query = text_of(record, "query" if "query" in record else "question", MAX_QUERY)
    return str(name), clean_text(query).strip(), frozenset(relevant)


def _identifier(record: Mapping[str, Any], key: str) -> str:
    value = text_of(record, key)
    if not _ID.fullmatch(value):
        form = "1 to 64 ASCII characters without white space, quotes, < and >"
        raise ValueError(f"{key} is {value!a:.80}, not an id: {form}")
    return value


def _list(record: Mapping[str, Any], key: str, limit: int) -> list[Any]:
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError(f"'{key}' is not a list of at most {limit} entries")
    return value
