"""Paper search in a large library: ``python -m benchmarks.paper_search``.

Writes a generated library of 100,000 papers with its queries as the JSONL files that a user would have, and measures
what StepPO's set-up costs there: building the index in a process of its own (seconds, peak memory, size on disk),
opening it again, whole steps of five searches and of five expansions, and whole episodes of the scripted expert. No
query is asked twice. The step to StepPO's 3 million papers is a multiplication; it says so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import write_result

PAPERS, FULL = 100_000, 3_000_000
STEPS, EPISODES, CALLS = 100, 100, 5
OPEN = """
import resource, sys, time
from rl_agents.envs.paper_search import PaperSearchOptions
from rl_agents.envs.paper_search.tasks import find_papers
started = time.perf_counter()
print(len(find_papers(PaperSearchOptions(papers=sys.argv[1]))._store))
print(time.perf_counter() - started, time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write_folder(count: int, folder: Path) -> None:
    """Write a generated library and its tasks as a user's files; the annotation stands for the facets."""
    from rl_agents.envs.paper_search import PaperSearchOptions
    from rl_agents.envs.paper_search.tasks import find_papers

    source: Any = find_papers(PaperSearchOptions(papers=f"generated:{count}"))
    papers = ({"paperId": p.paper_id, "title": p.title, "abstract": p.abstract, "references": p.references}
              for p in source.papers)  # fmt: skip
    _write_lines(folder / "papers.jsonl", papers)
    for split in ("train", "test"):
        tasks = map(source.task, source.task_ids(split))
        _write_lines(folder / f"{split}.jsonl", ({"query": t.query, "relevant": sorted(t.relevant)} for t in tasks))


def _write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def opened(folder: Path, name: str) -> dict[str, float]:
    """Open the folder in a new process; the first time builds the index."""
    done = subprocess.run([sys.executable, "-c", OPEN, str(folder)], check=True, capture_output=True, text=True)
    papers, seconds, cpu, peak = map(float, done.stdout.split())
    return {"papers": papers, f"{name} seconds": seconds, f"{name} CPU seconds": cpu, f"{name} peak MiB": peak}


def measure(folder: Path) -> dict[str, float]:
    """Play steps and episodes."""
    from rl_agents.envs.options import RetrieverKeys
    from rl_agents.envs.paper_search import PaperSearchOptions
    from rl_agents.envs.paper_search.demonstrations import EXPERT, written
    from rl_agents.envs.paper_search.tasks import find_papers, task_ids

    papers = str(folder)
    options = PaperSearchOptions(papers=papers)
    source, ids = find_papers(options), task_ids("test", options)
    library = source.library(ids[0], RetrieverKeys())
    titles = (passage.title for passage in library.store)
    queries = list(itertools.islice(dict.fromkeys(titles), STEPS * CALLS))
    searches = _searches(papers, ids, queries, written)
    measured = _paced("step of 5 searches", searches, STEPS)
    names = itertools.islice((str(name, "utf-8") for name in library.citations.ids[:: len(library) // 2000]), 2000)
    expansions = (lambda name=name: library.neighbors(name, 30, 99) for name in names)
    measured |= _paced("expansion", expansions, 2000)
    scores: list[float] = []
    episodes = (lambda task=task: scores.append(EXPERT.play(task, options)[1]["metrics"]["f1"]) for task in ids)
    measured |= _paced("expert's episode", episodes, EPISODES)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**measured, "expert's F1": sum(scores) / len(scores), "process peak MiB": peak}


def _searches(papers: str, ids: list[str], queries: list[str], written: Any) -> Iterator[Callable[[], object]]:
    from rl_agents.envs.base import make_env

    env = make_env("paper_search", {"papers": papers})
    for place in range(0, len(queries), CALLS):
        env.reset(options={"task_id": ids[place // CALLS % len(ids)]})
        action = written([("search", query) for query in queries[place : place + CALLS]], compact=False)
        yield lambda action=action: env.step(action)


def _paced(name: str, jobs: Iterable[Callable[[], object]], count: int) -> dict[str, float]:
    """Time ``count`` jobs, their preparation aside."""
    seconds = cpu = done = 0.0
    for job in itertools.islice(jobs, count):
        started, used = time.perf_counter(), time.process_time()
        job()
        seconds += time.perf_counter() - started
        cpu += time.process_time() - used
        done += 1
    return {f"{name}, CPU ms": cpu / done * 1e3, f"{name}, times a second": done / seconds}


def main() -> None:
    """Measure, print and write benchmarks/results/paper_search_library.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--papers", type=int, default=PAPERS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["RL_AGENTS_CACHE"] = str(Path(name) / "cache")
        folder = Path(name) / "papers"
        folder.mkdir()
        # In a process of its own, so that this one's memory is that of a run.
        code = "import sys; from pathlib import Path; from benchmarks.paper_search import write_folder; "
        code += "write_folder(int(sys.argv[1]), Path(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", code, str(args.papers), str(folder)], check=True)
        figures = {"papers MiB": (folder / "papers.jsonl").stat().st_size / 2**20}
        figures |= opened(folder, "build")
        files = (path for path in (Path(name) / "cache").rglob("*") if path.is_file())
        figures["index MiB"] = sum(path.stat().st_size for path in files) / 2**20
        figures |= opened(folder, "open")
        figures |= measure(folder)
    for figure in ("build CPU seconds", "index MiB", "step of 5 searches, CPU ms"):
        figures[f"{figure}, {FULL:,} papers (extrapolated)"] = figures[figure] * FULL / figures["papers"]
    for figure, value in figures.items():
        print(f"{figure:60} {value:12.4g}")
    command = " ".join(["python -m benchmarks.paper_search", *sys.argv[1:]])
    print(write_result("paper_search_library", command, [figures], load=os.getloadavg()[0]))


if __name__ == "__main__":
    main()
