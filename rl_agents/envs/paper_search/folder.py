"""Papers and queries of a user's own: a folder with ``papers.jsonl``, ``train.jsonl``, ``test.jsonl`` (any tables).

At its first use the texts become an index file in the cache, and the citations a file next to it: afterwards it opens
at once, and texts stay on disk.

A paper is what Semantic Scholar gives out:

    {"paperId": "649def34...", "title": "...", "abstract": "...", "externalIds": {"ArXiv": "1706.03762"},
     "references": [{"paperId": "..."}, "..."]}

``references`` holds ids, or objects with a ``paperId``; null stands for nothing. A paper with an arXiv id goes by it,
as in StepPO; references may name either. A query is

    {"id": "q1", "query": "...", "relevant": ["1706.03762", ...]}

or in PaSa's words ``qid``, ``question`` and ``answer_arxiv_id``. What else a record holds is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from rl_agents.data.tables import fingerprint, open_table, table_files
from rl_agents.envs.options import RetrieverKeys
from rl_agents.envs.panels import unknown_task
from rl_agents.envs.paper_search.library import Citations, Library, Paper, Task, citation_pairs
from rl_agents.errors import InputError
from rl_agents.retrieval.bm25 import clean_text
from rl_agents.retrieval.passages import Passage, PassageStore

MAX_TITLE, MAX_ABSTRACT, MAX_QUERY = 2_000, 20_000, 2_000
MAX_REFERENCES, MAX_RELEVANT = 10_000, 10_000
#: Printable ASCII without quotes and angle brackets, which would not survive in a call.
_ID = re.compile(r"[!#-&(-;=?-~]{1,64}")

T = TypeVar("T")


def read_papers(path: Path) -> Iterator[tuple[tuple[Paper, str], float]]:
    """Yield the papers of a file in its order, each with a further id that references may use for it (empty for none),
    and with the share of the file that has been read.

    Raises:
        InputError: the file or a record in it cannot be read; file, place and reason are named.
    """
    return _read(path, lambda record, number: _paper(record))


def read_queries(path: Path, split: str) -> dict[str, Task]:
    """Return the queries of a file by ``<split>/<id>``; one without an id is called by its place, from 1.

    Raises:
        InputError: see `read_papers`; or two queries of one id, or no usable one.
    """
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
    if not isinstance(record, Mapping):
        raise ValueError(f"a paper is {type(record).__name__}, not an object")
    paper_id = _identifier(record, "paperId")
    external = record.get("externalIds") or {}
    if not isinstance(external, Mapping):
        raise ValueError(f"externalIds is {type(external).__name__}, not an object")
    arxiv = _identifier(external, "ArXiv") if external.get("ArXiv") is not None else ""
    references = tuple(_reference(item) for item in _list(record, "references", MAX_REFERENCES) if item is not None)
    paper = Paper(
        arxiv or paper_id,
        " ".join(_text(record, "title", MAX_TITLE).split()),
        _text(record, "abstract", MAX_ABSTRACT, empty=True),
        tuple(name for name in references if name),
    )
    return paper, paper_id if arxiv and arxiv != paper_id else ""


def _reference(item: Any) -> str:
    """Return the id of a reference; empty for one that Semantic Scholar does not know (``paperId`` null)."""
    name = item.get("paperId") if isinstance(item, Mapping) else item
    if name is None:
        return ""
    if not isinstance(name, str):
        raise ValueError(f"a reference is {type(item).__name__}, neither an id nor an object with paperId")
    return name


def _query(record: Any, number: int) -> tuple[str, str, frozenset[str]]:
    if not isinstance(record, Mapping):
        raise ValueError(f"a query is {type(record).__name__}, not an object")
    name = record.get("id", record.get("qid", number))
    if not isinstance(name, str | int) or isinstance(name, bool) or not _ID.fullmatch(str(name)):
        raise ValueError(f"id is {name!a:.80}, not a short text or a number")
    relevant = _list(record, "relevant" if "relevant" in record else "answer_arxiv_id", MAX_RELEVANT)
    if not relevant or not all(isinstance(item, str) for item in relevant):
        raise ValueError("'relevant' is no list of paper ids with at least one")
    query = _text(record, "query" if "query" in record else "question", MAX_QUERY)
    return str(name), query, frozenset(relevant)


def _identifier(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if key not in record:
        raise ValueError(_missing(record, key))
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValueError(
            f"{key} is {value!a:.80}, not an id: 1 to 64 ASCII characters without white space, quotes, < and >"
        )
    return value


def _text(record: Mapping[str, Any], key: str, limit: int, empty: bool = False) -> str:
    value = record.get(key)
    if value is None and empty:
        return ""
    if key not in record:
        raise ValueError(_missing(record, key))
    if not isinstance(value, str) or not (empty or value.strip()) or len(value) > limit:
        raise ValueError(f"'{key}' is no text of {int(not empty)} to {limit} characters")
    return clean_text(value).strip()


def _list(record: Mapping[str, Any], key: str, limit: int) -> list[Any]:
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError(f"'{key}' is no list of at most {limit} entries")
    return value


def _missing(record: Mapping[str, Any], key: str) -> str:
    return f"no '{key}'; it has: {', '.join(ascii(name)[1:-1] for name in list(record)[:8]) or 'nothing'}"


PAPERS, SPLITS = "papers", ("train", "test")
#: Counts up when the same file gives another index.
FORMAT = 1


class FolderPapers:
    """The papers and queries of a folder; a task id is ``<split>/<query id>``.

    Raises:
        InputError: a file is missing or wrong, or no annotated paper is among the papers.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / PAPERS
        self._tasks = {name: task for split in SPLITS for name, task in read_queries(folder / split, split).items()}
        version = f"{FORMAT}/error/{fingerprint(table_files(str(self._path)))}"
        self._store = PassageStore.cached(f"papers-{folder.name}", version, self._passages)
        assert self._store.path is not None
        self._citations = Citations.cached(self._store.path.with_suffix(".citations.npz"), self._build_citations)
        self._library = lru_cache(maxsize=2)(
            lambda retrieval: Library(self._store, self._citations, retrieval.over(self._store))
        )
        if not any(paper in self._citations for task in self._tasks.values() for paper in task.relevant):
            example = min(next(iter(self._tasks.values())).relevant)
            raise InputError(
                f"{folder}: no relevant paper of any query is among the {PAPERS}; the first is called '{example}'"
            )

    def task_ids(self, split: str) -> Sequence[str]:
        """Return the tasks of ``train`` or ``test``, in the order of the file."""
        return [name for name in self._tasks if name.startswith(f"{split}/")]

    def task(self, task_id: str) -> Task:
        if task_id not in self._tasks:
            raise unknown_task("paper_search", task_id, self._tasks, "<split>/<query id>")
        return self._tasks[task_id]

    def library(self, task_id: str, retrieval: RetrieverKeys) -> Library:
        return self._library(retrieval)

    def _passages(self) -> Iterator[tuple[Passage, float]]:
        for (paper, _), share in read_papers(self._path):
            yield paper.passage, share

    def _build_citations(self) -> Citations:
        """Read the file again, now that every paper has its place."""
        rows: dict[str, int] = {}
        others: dict[str, int] = {}
        for (paper, alias), _ in read_papers(self._path):
            if alias:
                others[alias] = len(rows)
            rows[paper.paper_id] = len(rows)
        papers = (paper for (paper, _), _ in read_papers(self._path))
        return Citations.build(list(rows), citation_pairs(papers, {**others, **rows}))


def open_folder(folder: Path) -> FolderPapers:
    """Return the papers of a folder; files that changed are read again.

    Raises:
        InputError: see `FolderPapers`.
    """
    paths = [path for name in (PAPERS, *SPLITS) for path in table_files(str(folder / name))]
    return _opened(folder, fingerprint(paths))


@lru_cache(maxsize=2)
def _opened(folder: Path, version: str) -> FolderPapers:
    return FolderPapers(folder)
