"""The same numbers as metrics.jsonl, for trackers of others: Weights & Biases, MLflow, trackio, or one of your own.

TensorBoard and ``metrics.jsonl`` are always written; ``trackers`` names what is told as well (docs/tracking.md). A
tracker that fails never ends a run: it is said once, and counted in the summary.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl_agents.errors import InputError, unknown
from rl_agents.plugins import claim
from rl_agents.reporting.run_folder import Record, write_atomically

#: In the run's folder: what each tracker calls the run, and the last iteration that it was told.
STATE_FILE = "trackers.json"
#: A value under such a name, or within a URL, is a secret and leaves the machine with nobody.
SECRET = re.compile(r"(?:^|_)(?:key|token|secret|password)$")
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")


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
    """Return settings as a tracker may see them: no secrets, no credentials within URLs."""
    return {
        name: CREDENTIALS.sub("***@", value) if isinstance(value, str) else value
        for name, value in settings.items()
        if not (SECRET.search(name) and value)
    }


@dataclass
class Trackers:
    """All trackers of a run: each is told everything once, in order, and none can harm the run.

    Attributes:
        failures: calls that raised, by tracker; after the first one it is left alone.
    """

    folder: Path
    say: Callable[[str], None]
    failures: dict[str, int] = field(default_factory=dict)
    _open: dict[str, Tracker] = field(default_factory=dict)
    _state: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, folder: Path, names: Sequence[str], project: str, config: Mapping[str, Any], say: Callable[[str], None]
    ) -> Trackers:
        """Open the trackers of ``names`` for the run in ``folder``; what it was resumed from is gone on with."""
        trackers = cls(folder, say)
        path = folder / STATE_FILE
        if path.is_file():
            trackers._state = json.loads(path.read_text(encoding="utf-8"))
        sweep = folder.parent.parent if folder.parent.name == "trials" else None
        for name in names:
            known = trackers._state.setdefault(name, {"id": "", "iteration": -1})
            run = TrackedRun(
                folder, project, folder.name, sweep.name if sweep else "", shown_config(config), known["id"]
            )
            opened = trackers._try(name, partial(TRACKERS[name].open, run))
            if opened is not None:
                trackers._open[name] = opened
                known["id"] = opened.id
        return trackers

    def write(self, record: Record, late: bool = False) -> None:
        """Tell each tracker the tagged numbers of a record; an iteration that it knows already is left out.

        Args:
            late: they belong to an iteration that was told before, such as an evaluation that a signal cut off.
        """
        iteration = int(record["iteration"])
        metrics = {tag: float(value) for tag, value in record.items() if "/" in tag and value is not None}
        for name, tracker in list(self._open.items()):
            if iteration + late > self._state[name]["iteration"]:
                self._try(name, partial(tracker.log, iteration, metrics))
                self._state[name]["iteration"] = iteration
        self._save()

    def episodes(self, iteration: int, text: str) -> None:
        """Show each tracker some episodes of an evaluation."""
        for name, tracker in list(self._open.items()):
            if iteration > self._state[name]["iteration"]:
                self._try(name, partial(tracker.episodes, iteration, text))

    def close(self, status: str) -> None:
        """Tell each tracker how the run ended."""
        for name, tracker in list(self._open.items()):
            self._try(name, partial(tracker.close, status))
        self._open.clear()

    def _try(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            self.failures[name] = self.failures.get(name, 0) + 1
            self._open.pop(name, None)
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self.say(f"[rl_agents] tracker {name} is left alone from here on: {reason}; the run goes on")
            return None

    def _save(self) -> None:
        if self._state:
            write_atomically(self.folder / STATE_FILE, json.dumps(self._state, indent=1) + "\n")
