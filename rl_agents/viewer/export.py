"""Export of the pages into a folder that opens from disk: the same scripts, with all answers in files.

A page from disk cannot fetch files, but it can load scripts. Each ``data/N.js`` has a dictionary from question to
answer, and ``data/index.js`` maps questions to files. Answers are redundant (an episode names its siblings, a prompt
contains earlier ones), so both are compressed JSON in base64, a sixteenth of the size.
"""

from __future__ import annotations

import base64
import json
import shutil
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rl_agents.errors import InputError
from rl_agents.viewer.answers import answer
from rl_agents.viewer.episodes import PIECE as PIECE_OF_TEXT
from rl_agents.viewer.groups import KINDS
from rl_agents.viewer.runs import Catalog, Run
from rl_agents.viewer.server import STATIC
from rl_agents.web.errors import ApiError

#: The server's policy as far as a page can set it; ``self`` are the files of the page's folder.
POLICY = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file:; base-uri 'none'; "
    "form-action 'none'; require-trusted-types-for 'script'; trusted-types bundle"
)
#: Characters of JSON per file.
PIECE = 2_000_000
#: Most searches with trees.
TREES = 30

Question = tuple[str, Mapping[str, Any]]


@dataclass
class Bundle:
    """The files of an export.

    Attributes:
        places: question -> number of its file.
        waiting: question -> JSON of the next file.
        files: number of written files.
        size: their characters.
    """

    folder: Path
    catalog: Catalog
    places: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    files: int = 0
    size: int = 0

    def ask(self, view: str, **values: Any) -> dict[str, Any]:
        """Return a view's data; see `answer`."""
        text = answer(self.catalog, view, {name: str(value) for name, value in values.items()})
        return json.loads(text)  # type: ignore[no-any-return]

    def add(self, view: str, **values: Any) -> dict[str, Any]:
        """Add a view's data as it is, and return it."""
        data = self.ask(view, **values)
        self.write({question(view, **values): data})
        return data

    def write(self, answers: Mapping[str, Any]) -> None:
        """Add answers, and write a file if they are large enough."""
        self.waiting.update({key: json.dumps(value, separators=(",", ":")) for key, value in answers.items()})
        self.places.update(dict.fromkeys(answers, self.files + 1))
        if sum(map(len, self.waiting.values())) >= PIECE:
            self._write_piece()

    def write_index(self, note: str) -> None:
        """Write the last file and the index."""
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
    """Return a question as the page writes it (``view.query`` in core.js): sorted and URL-encoded."""
    pairs = sorted(f"{quote(name, safe=SAFE)}={quote(str(value), safe=SAFE)}" for name, value in values.items())
    return f"{view}?{'&'.join(pairs)}"


#: Characters that encodeURIComponent keeps, besides letters and digits.
SAFE = "-_.!~*'()"


def packed(text: str) -> str:
    """Return compressed ASCII text in base64, which is safe in a script."""
    return base64.b64encode(zlib.compress(text.encode("ascii"), 9)).decode("ascii")


def export(catalog: Catalog, folder: Path, last: int) -> str:
    """Write the pages; return a summary sentence.

    Args:
        last: newest iterations of each run whose episodes are exported; 0: all.

    Raises:
        InputError: the folder is not empty or cannot be written, or a run cannot be read.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--export {folder}: is not empty")
    try:
        (folder / "data").mkdir(parents=True, exist_ok=True)
        return _export(Bundle(folder, catalog), last)
    except ApiError as error:
        raise InputError(str(error)) from None
    except OSError as error:
        raise InputError(f"--export {folder}: cannot be written: {error.strerror}") from None


def _export(bundle: Bundle, last: int) -> str:
    shutil.copytree(STATIC, bundle.folder / "static", ignore=shutil.ignore_patterns("*.html"))
    runs = bundle.add("runs")
    for name in bundle.catalog.runs:
        bundle.add("series", run=name)
    for name in runs["sweeps"]:
        bundle.add("sweep", sweep=name)
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
    """Write a run; return the number of sessions."""
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
    bundle.add("curriculum", run=name)
    if run.has_pool:
        _searches(bundle, name, kept)
    return count


def _iteration(bundle: Bundle, run: str, iteration: int, tasks: set[str]) -> int:
    """Write an iteration; return the number of sessions. ``tasks`` collects its tasks."""
    bundle.add("steps", run=run, iteration=iteration)
    first = bundle.ask("groups", run=run, iteration=iteration)
    sessions = 0
    for kind in [kind for kind in KINDS if kind in first["kinds"]]:
        data = _all_groups(bundle, run, iteration, kind)
        if kind == first["kind"]:
            bundle.write({question("groups", run=run, iteration=iteration): data})
        bundle.write({question("groups", run=run, iteration=iteration, kind=kind): data})
        for row in data["rows"]:
            tasks.add(row["task"])
            sessions += len(row["members"])
            bundle.add("group", run=run, iteration=iteration, group=row["group"], kind=kind)
            for member in row["members"]:
                _episode(bundle, {"run": run, "session": member["id"]})
    return sessions


def _all_groups(bundle: Bundle, run: str, iteration: int, kind: str) -> dict[str, Any]:
    data = bundle.ask("groups", run=run, iteration=iteration, kind=kind)
    while data["next"] is not None:
        more = bundle.ask("groups", run=run, iteration=iteration, kind=kind, after=data["next"])
        data["rows"] += more["rows"]
        data["next"] = more["next"]
    return data


def _episode(bundle: Bundle, session: Mapping[str, Any]) -> None:
    """Write a session with the texts that its answer cuts, and its tokens."""
    for step in bundle.add("episode", **session)["steps"]:
        for part, length in step["cut"].items():
            for start in range(len(step[part]), length, PIECE_OF_TEXT):
                bundle.add("text", **session, ordinal=step["ordinal"], field=part, start=start)
        if "tokens" in step:
            bundle.add("tokens", **session, ordinal=step["ordinal"])


def _tasks(bundle: Bundle, tasks: set[str], kept: set[int]) -> None:
    """Write the histories of tasks, only with exported iterations."""
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
        with suppress(ApiError):  # a resumed run has discarded it
            bundle.add("tree", run=run, seed=row["seed"])
