"""A folder of pages that opens from disk: the same scripts, with their answers in files next to them.

A page that is opened from disk may not fetch files, but it may load scripts: answers stand in ``data/N.js``, each of
which hands over a dictionary from question to answer; ``data/index.js`` says which question is in which file. Answers
repeat each other (an episode names its siblings, a prompt holds those before it), so both are JSON, deflated, in
base64: a sixteenth of the JSON.
"""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rl_agents.errors import InputError
from rl_agents.viewer.answers import answer
from rl_agents.viewer.groups import KINDS
from rl_agents.viewer.runs import Catalog, Run
from rl_agents.viewer.server import STATIC
from rl_agents.web.errors import ApiError

#: The same as the server sends, as far as a page can say so itself; of a page from disk ``self`` is its folder's files.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types bundle"
)
#: Characters of JSON in one file; what a page opens first is one file away, and files are few.
PIECE = 2_000_000
#: Searches whose trees are kept.
TREES = 30

Question = tuple[str, Mapping[str, Any]]


@dataclass
class Bundle:
    """What is written, file by file.

    Attributes:
        places: question -> number of its file.
        waiting: answers, as JSON, of the file that is not written yet.
        files: written ones.
        size: their characters.
    """

    folder: Path
    catalog: Catalog
    places: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    files: int = 0
    size: int = 0

    def ask(self, view: str, **values: Any) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(answer(self.catalog, view, {name: str(v) for name, v in values.items()}))
        return data

    def write(self, answers: Mapping[str, Any]) -> None:
        """Take answers in, and write a file where there are enough of them."""
        self.waiting.update({key: json.dumps(value, separators=(",", ":")) for key, value in answers.items()})
        self.places.update(dict.fromkeys(answers, self.files + 1))
        if sum(map(len, self.waiting.values())) >= PIECE:
            self._write_piece()

    def write_index(self, note: str) -> None:
        """Write what is left, and which question is in which file."""
        self._write_piece()
        places = json.dumps(self.places, separators=(",", ":"))
        text = f'window.exported={{"note":{json.dumps(note)},"places":"{packed(places)}","shards":{{}}}};\n'
        self._write(self.folder / "data" / "index.js", text)

    def _write_piece(self) -> None:
        if self.waiting:
            self.files += 1
            text = ",".join(f"{json.dumps(key)}:{value}" for key, value in self.waiting.items())
            self._write(
                self.folder / "data" / f"{self.files}.js",
                f'window.exported.shards[{self.files}]="{packed(f"{{{text}}}")}";\n',
            )
            self.waiting.clear()

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="ascii")
        self.size += len(text)


def question(view: str, **values: Any) -> str:
    """Return a question as the page writes it (``view.query`` in core.js): sorted, and encoded in the same way."""
    pairs = sorted(f"{quote(name, safe=SAFE)}={quote(str(value), safe=SAFE)}" for name, value in values.items())
    return f"{view}?{'&'.join(pairs)}"


#: What encodeURIComponent leaves as it is, besides letters and digits.
SAFE = "-_.!~*'()"


def packed(text: str) -> str:
    """Return ASCII text, deflated, in base64: it may stand in a script, whatever a model wrote."""
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def export(catalog: Catalog, folder: Path, last: int) -> str:
    """Write the pages; return a sentence about what was written.

    Args:
        last: the newest iterations of each run whose episodes are kept; 0: all.

    Raises:
        InputError: the folder is not empty, or cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--export {folder}: is not empty")
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        return _export(Bundle(folder, catalog), last)
    except OSError as error:
        raise InputError(f"--export {folder}: cannot be written: {error.strerror}") from None


def _export(bundle: Bundle, last: int) -> str:
    shutil.copytree(STATIC, bundle.folder / "static", ignore=shutil.ignore_patterns("*.html"))
    runs = bundle.ask("runs")
    start = {question("runs"): {**runs, "edit": False}}
    for name in bundle.catalog.runs:
        start[question("series", run=name)] = bundle.ask("series", run=name)
    for name in runs["sweeps"]:
        start[question("sweep", sweep=name)] = bundle.ask("sweep", sweep=name)
    bundle.write(start)
    sessions = sum(_run(bundle, run, last) for run in bundle.catalog.runs.values())
    note = f"the newest {last} iterations of each run" if last else "all iterations"
    bundle.write_index(note)
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    scripts = '<script src="data/index.js" defer></script>'
    page = page.replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}').replace("<!--export-->", scripts)
    (bundle.folder / "index.html").write_text(page, encoding="utf-8")
    return f"{bundle.folder / 'index.html'}: {note}, {sessions} sessions, {bundle.size / 1e6:.1f} MB"


def _run(bundle: Bundle, run: Run, last: int) -> int:
    """Write a run; return how many sessions."""
    name = run.name
    data = bundle.ask("iterations", run=name)
    sampled = [row["iteration"] for row in data["rows"] if row["sampled"]]
    chosen = sampled[:last] if last else sampled
    kept = set(chosen)
    data["rows"] = [{**row, "sampled": row["iteration"] in kept} for row in data["rows"]]
    bundle.write({question("iterations", run=name): data})
    tasks: set[str] = set()
    count = sum(_iteration(bundle, name, iteration, tasks) for iteration in chosen)
    _tasks(bundle, tasks, kept)
    if run.has_pool:
        _searches(bundle, name, kept)
    return count


def _iteration(bundle: Bundle, run: str, iteration: int, tasks: set[str]) -> int:
    """Write an iteration; return how many sessions. ``tasks`` collects the tasks that it met."""
    steps = {question("steps", run=run, iteration=iteration): bundle.ask("steps", run=run, iteration=iteration)}
    first = bundle.ask("groups", run=run, iteration=iteration)
    sessions, pages = 0, dict[str, Any](steps)
    for kind in [kind for kind in KINDS if kind in first["kinds"]]:
        data = _all_groups(bundle, run, iteration, kind)
        if kind == first["kind"]:
            pages[question("groups", run=run, iteration=iteration)] = data
        pages[question("groups", run=run, iteration=iteration, kind=kind)] = data
        for row in data["rows"]:
            tasks.add(row["task"])
            sessions += len(row["members"])
            bundle.write(dict(_group(bundle, run, iteration, row, kind)))
    bundle.write(pages)
    return sessions


def _all_groups(bundle: Bundle, run: str, iteration: int, kind: str) -> dict[str, Any]:
    data = bundle.ask("groups", run=run, iteration=iteration, kind=kind)
    while data["next"] is not None:
        more = bundle.ask("groups", run=run, iteration=iteration, kind=kind, after=data["next"])
        data["rows"] += more["rows"]
        data["next"] = more["next"]
    return data


def _group(
    bundle: Bundle, run: str, iteration: int, row: Mapping[str, Any], kind: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    values: dict[str, Any] = {"run": run, "iteration": iteration, "group": row["group"], "kind": kind}
    yield question("group", **values), bundle.ask("group", **values)
    for member in row["members"]:
        session = {"run": run, "session": member["id"]}
        episode = bundle.ask("episode", **session)
        yield question("episode", **session), episode
        for step in episode["steps"]:
            if "tokens" in step:
                place = {**session, "ordinal": step["ordinal"]}
                yield question("tokens", **place), bundle.ask("tokens", **place)


def _tasks(bundle: Bundle, tasks: set[str], kept: set[int]) -> None:
    """Write the histories of tasks, as far as their episodes are here."""
    found = {}
    for task in sorted(tasks):
        if (key := question("task", task=task)) not in bundle.places:
            data = bundle.ask("task", task=task)
            runs = {run: [row for row in rows if row["iteration"] in kept] for run, rows in data["runs"].items()}
            found[key] = {**data, "runs": {run: rows for run, rows in runs.items() if rows}}
    if found:
        bundle.write(found)


def _searches(bundle: Bundle, run: str, kept: set[int]) -> None:
    data = bundle.ask("searches", run=run)
    data["rows"] = [row for row in data["rows"] if any(row["first"] <= i <= row["last"] for i in kept)][:TREES]
    bundle.write({question("searches", run=run): data})
    for row in data["rows"]:
        try:
            bundle.write({question("tree", run=run, seed=row["seed"]): bundle.ask("tree", run=run, seed=row["seed"])})
        except ApiError:  # a resumption took it back meanwhile
            continue
