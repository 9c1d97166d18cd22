"""A library: papers, the citations between them, and retrieval over their titles and abstracts; and what is asked.

Who cites whom stands in arrays: a few bytes a citation, in memory and in a file next to the index of the texts.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rl_agents.data.building import only_one
from rl_agents.envs.options import RetrieverKeys
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore
from rl_agents.retrieval.retriever import Retriever

Rows = npt.NDArray[np.int32]
#: (number of the citing paper, number of the cited one), both from 0.
Pairs = Iterable[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Citations:
    """The citations between papers.

    Attributes:
        ids: of the papers in their order, in UTF-8.
        sorted_ids, places: the ids in ascending order, and where each stands in ``ids``.
        reference_ends, references: paper n cites ``references[ends[n] : ends[n + 1]]``, in the order of its own list.
        citing_ends, citing: the same the other way round, in the order of the papers.
    """

    ids: npt.NDArray[np.bytes_]
    sorted_ids: npt.NDArray[np.bytes_]
    places: Rows
    reference_ends: npt.NDArray[np.int64]
    references: Rows
    citing_ends: npt.NDArray[np.int64]
    citing: Rows

    @classmethod
    def build(cls, ids: Sequence[str], pairs: Pairs) -> Citations:
        """Collect citations between papers; each pair once, in the order of the citing papers."""
        encoded = np.array([name.encode() for name in ids], dtype=np.bytes_)
        flat = np.fromiter((number for pair in pairs for number in pair), dtype=np.int32).reshape(-1, 2)
        sources, targets = flat[:, 0], flat[:, 1]
        back = np.argsort(targets, kind="stable")
        order = np.argsort(encoded, kind="stable").astype(np.int32)
        return cls(
            encoded, encoded[order], order,
            _ends(sources, len(ids)), targets.copy(), _ends(targets, len(ids)), sources[back],
        )  # fmt: skip

    @classmethod
    def cached(cls, path: Path, build: Callable[[], Citations]) -> Citations:
        """Return what ``path`` holds; it is built and written first when there is no such file.

        Raises:
            InputError: the file is broken, or what ``build`` raises.
        """
        if not path.is_file():
            with only_one(path):
                if not path.is_file():
                    build()._write(path)
        try:
            with np.load(path, allow_pickle=False) as stored:
                return cls(*(stored[name] for name in cls.__dataclass_fields__))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path}: these citations are broken; remove the file, and it is written again") from error

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, paper_id: object) -> bool:
        return isinstance(paper_id, str) and self._row(paper_id) is not None

    def cited_by(self, paper_id: str, count: int) -> list[str]:
        """Return the first ``count`` papers that a paper cites; none for an unknown one."""
        return self._linked(paper_id, self.reference_ends, self.references, count)

    def citing_papers(self, paper_id: str, count: int) -> list[str]:
        """Return the first ``count`` papers that cite a paper; none for an unknown one."""
        return self._linked(paper_id, self.citing_ends, self.citing, count)

    def _linked(self, paper_id: str, ends: npt.NDArray[np.int64], targets: Rows, count: int) -> list[str]:
        row = self._row(paper_id)
        if row is None:
            return []
        start = int(ends[row])
        return [bytes(name).decode() for name in self.ids[targets[start : min(start + count, int(ends[row + 1]))]]]

    def _row(self, paper_id: str) -> int | None:
        encoded = paper_id.encode("utf-8", "replace")
        # Longer than every id: it is none, and must not widen the array. numpy drops a NUL at the end.
        if len(encoded) > self.sorted_ids.itemsize or encoded.endswith(b"\0"):
            return None
        place = int(np.searchsorted(self.sorted_ids, np.bytes_(encoded)))
        found = place < len(self.sorted_ids) and bytes(self.sorted_ids[place]) == encoded
        return int(self.places[place]) if found else None

    def _write(self, path: Path) -> None:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".citations-", delete=False) as file:
            try:
                np.savez(file, **{name: getattr(self, name) for name in self.__dataclass_fields__})
            except BaseException:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)


def _ends(rows: Rows, count: int) -> npt.NDArray[np.int64]:
    """Return where each row's entries end, after a leading 0."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count)))).astype(np.int64)


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
        return cls(store, citations, retrieval.over(store), {p.paper_id: p.facets for p in papers})

    def __len__(self) -> int:
        return len(self.store)

    def __contains__(self, paper_id: object) -> bool:
        return paper_id in self.citations

    def paper(self, paper_id: str) -> Passage:
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
