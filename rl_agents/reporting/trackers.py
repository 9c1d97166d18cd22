"""The same numbers as metrics.jsonl, for trackers of others: Weights & Biases, MLflow, trackio, or one of your own.

TensorBoard and ``metrics.jsonl`` are always written; ``trackers`` adds others (docs/how-to/inspect-a-run.md). A
tracker that fails or is slow never ends a run nor holds it up: it is said once, and the tracker is left alone.
"""

from __future__ import annotations

import importlib.util
import json
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl_agents.durable import replace_text
from rl_agents.errors import InputError, unknown
from rl_agents.plugins import claim
from rl_agents.reporting.run_folder import Record

#: In the run's folder: what each tracker calls the run, and the last iteration that it was told.
STATE_FILE = "trackers.json"
#: A value under such a name, or within a URL, is a secret and leaves the machine with nobody.
SECRET = re.compile(r"(?:^|_)(?:key|token|secret|password)$")
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
QUERY = re.compile(r"(://[^\s?]+)\?\S+")
#: Seconds after a run's end that a tracker's server is waited for.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run.

    Attributes:
        folder: the run's output folder; what a tracker writes offline belongs below it.
        project: name of the project or experiment.
        name: the run's name, that of its folder.
        group: the sweep that it is a trial of; empty: none.
        config: its settings, without secrets.
        known_as: what the tracker called this run before it was resumed; empty: a new one.
    """

    folder: Path
    project: str
    name: str
    group: str
    config: Mapping[str, Any]
    known_as: str = ""


class Tracker(Protocol):
    """One tracker's view of one run; every call may raise, and is then not made again."""

    #: What the tracker calls the run; a resumed run is given it as ``known_as``.
    id: str

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Note numbers of an iteration; iterations come in order, none twice."""

    def episodes(self, iteration: int, text: str) -> None:
        """Note some episodes of an evaluation, as readable Markdown."""

    def close(self, status: str) -> None:
        """The run ended: ``done``, ``interrupted``, ``fell`` or ``failed``."""


@dataclass(frozen=True)
class TrackerEntry:
    """A tracker that can be named.

    Attributes:
        open: begins a run, or goes on with it.
        library: module that it needs; empty: none.
        install: what installs it.
    """

    name: str
    open: Callable[[TrackedRun], Tracker]
    library: str = ""
    install: str = ""


TRACKERS: dict[str, TrackerEntry] = {}


def register_tracker(entry: TrackerEntry) -> TrackerEntry:
    """Make a tracker known by its name; a plugin calls this when it is imported.

    Raises:
        InputError: the name is taken.
    """
    claim("tracker", entry.name, TRACKERS)
    TRACKERS[entry.name] = entry
    return entry


def check_trackers(names: Sequence[str]) -> None:
    """Refuse trackers that do not exist or whose library is missing, before anything starts.

    Raises:
        InputError: which one, and the nearest or what to install.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        entry = TRACKERS[name]
        if entry.library and importlib.util.find_spec(entry.library) is None:
            raise InputError(f"trackers={name}: {entry.library} is not installed; install it with: {entry.install}")


def shown_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as others may see them: no secrets at any depth, no credentials or queries within URLs."""
    shown: dict[str, Any] = _shown(settings)
    return shown


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _shown(item) for name, item in value.items() if not (SECRET.search(str(name)) and item)}
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    if isinstance(value, str):
        return QUERY.sub(r"\1?***", CREDENTIALS.sub("***@", value))
    return value


class Trackers:
    """All trackers of a run: each is told everything once, in order, and none can harm the run.

    They are told from a thread of their own, so that a slow server holds up nothing but its own figures.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self.say = folder, say
        #: Calls that raised, by tracker; after the first one it is left alone.
        self.failures: dict[str, int] = {}
        self._open: dict[str, Tracker] = {}
        self._state: dict[str, dict[str, Any]] = {}
        self._calls: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(
        cls, folder: Path, names: Sequence[str], project: str, config: Mapping[str, Any], say: Callable[[str], None]
    ) -> Trackers:
        """Open the trackers of ``names`` for the run in ``folder``; what it was resumed from is gone on with."""
        trackers = cls(folder, say)
        path = folder / STATE_FILE
        if path.is_file():
            trackers._state = json.loads(path.read_text(encoding="utf-8"))
        sweep = folder.parent.parent.name if folder.parent.name == "trials" else ""
        for name in names:
            known = trackers._state.setdefault(name, {"id": "", "iteration": -1})
            run = TrackedRun(folder, project, folder.name, sweep, shown_config(config), known["id"])
            trackers._try(name, partial(trackers._begin, name, run))
        if trackers._open:
            trackers._thread = threading.Thread(target=trackers._tell, name="trackers", daemon=True)
            trackers._thread.start()
        return trackers

    def write(self, record: Record, late: bool = False) -> None:
        """Tell each tracker the tagged numbers of a record; an iteration that it knows already is left out.

        Args:
            late: they belong to an iteration that was told before, such as an evaluation that a signal cut off.
        """
        metrics = {tag: float(value) for tag, value in record.items() if "/" in tag and value is not None}
        self._calls.put(partial(self._log, int(record["iteration"]), metrics, late))

    def episodes(self, iteration: int, text: str) -> None:
        """Show each tracker some episodes of an evaluation."""
        self._calls.put(partial(self._show, iteration, text))

    def close(self, status: str) -> None:
        """Tell each tracker how the run ended, and wait until all of it is told, `PATIENCE_S` at most."""
        if self._thread is None:
            return
        self._calls.put(partial(self._end, status))
        self._calls.put(None)
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            left = ", ".join(self._open)
            self.say(f"[rl_agents] trackers {left}: not done {PATIENCE_S:.0f} s after the run; they are left alone")
        self._thread = None

    def _tell(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _begin(self, name: str, run: TrackedRun) -> None:
        self._open[name] = TRACKERS[name].open(run)
        self._state[name]["id"] = self._open[name].id
        self._save()

    def _log(self, iteration: int, metrics: Mapping[str, float], late: bool) -> None:
        for name, tracker in list(self._open.items()):
            if iteration + late > self._state[name]["iteration"] and self._try(
                name, partial(tracker.log, iteration, metrics)
            ):
                self._state[name]["iteration"] = iteration
                self._try(name, self._save)

    def _show(self, iteration: int, text: str) -> None:
        for name, tracker in list(self._open.items()):
            if iteration > self._state[name]["iteration"]:
                self._try(name, partial(tracker.episodes, iteration, text))

    def _end(self, status: str) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, partial(tracker.close, status))
            self._open.pop(name, None)

    def _try(self, name: str, call: Callable[[], Any]) -> bool:
        try:
            call()
        except Exception as error:
            self.failures[name] = self.failures.get(name, 0) + 1
            self._open.pop(name, None)
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self.say(f"[rl_agents] tracker {name} is left alone from here on: {reason}; the run goes on")
            return False
        return True

    def _save(self) -> None:
        replace_text(self.folder / STATE_FILE, json.dumps(self._state, indent=1) + "\n")
