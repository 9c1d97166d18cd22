"""Papers and queries of a user's own: a folder with ``papers.jsonl``, ``train.jsonl``, ``test.jsonl`` (any tables).

At its first use the texts become an index file in the cache, and the citations a file beside it: afterwards it opens at
once, and texts stay on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rl_agents.data.tables import fingerprint, table_files
from rl_agents.envs.options import RetrieverKeys
from rl_agents.envs.panels import unknown_task
from rl_agents.envs.paper_search.citations import Citations
from rl_agents.envs.paper_search.library import Library, Task, citation_pairs
from rl_agents.envs.paper_search.records import read_papers, read_queries
from rl_agents.envs.retrievers import retriever_over
from rl_agents.errors import InputError
from rl_agents.retrieval.passages import Passage, PassageStore

PAPERS, SPLITS = "papers", ("train", "test")
#: Counts up when the same file gives another index.
FORMAT = 1


class FolderPapers:
    """The papers and queries of a folder; a task id is ``<split>/<query id>``.

    Raises:
        InputError: a file is missing or wrong, or no annotated paper is among the papers.
    """

    def __init__(self, folder: Path, bad_data: str) -> None:
        self._path, self._bad_data = folder / PAPERS, bad_data
        self._tasks: Mapping[str, Task] = {
            name: Task(name, record.query, frozenset(record.relevant))
            for split in SPLITS
            for record in read_queries(folder / split, bad_data)
            for name in [f"{split}/{record.query_id}"]
        }
        version = f"{FORMAT}/{bad_data}/{fingerprint(table_files(str(self._path)))}"
        self._store = PassageStore.cached(f"papers-{folder.name}", version, self._passages)
        assert self._store.path is not None
        self._citations = Citations.cached(self._store.path.with_suffix(".citations.npz"), self._build_citations)
        self._library = lru_cache(maxsize=2)(
            lambda retrieval: Library(self._store, self._citations, retriever_over(self._store, retrieval))
        )
        if not any(paper in self._citations for task in self._tasks.values() for paper in task.relevant):
            example = min(next(iter(self._tasks.values())).relevant)
            raise InputError(
                f"{folder}: no relevant paper of any query is among the {PAPERS}; the first is called '{example}'"
            )

    def task_ids(self, split: str) -> Sequence[str]:
        """See `Papers.task_ids`; in the order of the file."""
        return [name for name in self._tasks if name.startswith(f"{split}/")]

    def task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            raise unknown_task("paper_search", task_id, self._tasks, "<split>/<query id>")
        return self._tasks[task_id]

    def library(self, task_id: str, retrieval: RetrieverKeys) -> Library:
        return self._library(retrieval)

    def _passages(self) -> Iterator[tuple[Passage, float]]:
        for record, share in read_papers(self._path, self._bad_data):
            yield record.paper.passage, share

    def _build_citations(self) -> Citations:
        """Read the file again, now that every paper has its place."""
        rows: dict[str, int] = {}
        others: dict[str, int] = {}
        for record, _ in read_papers(self._path, self._bad_data):
            others.update(dict.fromkeys(record.aliases, len(rows)))
            rows[record.paper.paper_id] = len(rows)
        papers = (record.paper for record, _ in read_papers(self._path, self._bad_data))
        return Citations.build(list(rows), citation_pairs(papers, {**others, **rows}))


def open_folder(folder: Path, bad_data: str) -> FolderPapers:
    """Return the papers of a folder; files that changed are read again.

    Raises:
        InputError: see `FolderPapers`.
    """
    paths = [path for name in (PAPERS, *SPLITS) for path in table_files(str(folder / name))]
    return _opened(folder, bad_data, fingerprint(paths))


@lru_cache(maxsize=2)
def _opened(folder: Path, bad_data: str, version: str) -> FolderPapers:
    return FolderPapers(folder, bad_data)
