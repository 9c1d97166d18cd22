"""Experiment trackers for the numbers of metrics.jsonl: Weights & Biases, MLflow, Trackio, or your own.

TensorBoard and ``metrics.jsonl`` are always written; ``trackers`` adds others (docs/how-to/inspect-a-run.md). A tracker
that fails or is slow never ends or delays a run: there is one warning, and the tracker is disabled. Its library is
imported when a run begins.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl_agents import plugins
from rl_agents.durable import read_json, replace_text
from rl_agents.errors import InputError, place_of, unknown

#: File in the run's folder with each tracker's id of the run, and the last logged iteration.
STATE_FILE = "trackers.json"
#: Values with such names, and credentials in URLs, are secrets and never leave the machine.
SECRET = re.compile(r"(?:^|_)(?:key|token|secret|password)$")
CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
QUERY = re.compile(r"(://[^\s?]+)\?\S+")
#: Seconds to wait for trackers after the end of a run.
PATIENCE_S = 60.0


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker sees it.

    Attributes:
        folder: the run's output folder, also for offline files of a tracker.
        project: name of the project or experiment.
        group: its sweep; empty: none.
        config: its settings, without secrets.
        known_as: the tracker's id of a resumed run; empty: a new run.
    """

    folder: Path
    project: str
    name: str
    group: str
    config: Mapping[str, Any]
    known_as: str = ""


class Tracker(Protocol):
    """One run in a tracker; it is disabled if a method raises."""

    #: The tracker's id of the run; a resumed run gets it as ``known_as``.
    id: str

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Log numbers of an iteration; iterations are increasing."""

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log some episodes of an evaluation: rows of a table, as `rl_agents.reporting.views.episode_rows` makes them.

        The metrics of the iteration follow.
        """

    def close(self, status: str) -> None:
        """End the run: ``done``, ``interrupted``, ``fell`` or ``failed``."""


@dataclass(frozen=True)
class TrackerEntry:
    """A registered tracker.

    Attributes:
        open: starts or continues a run.
        library: required module; empty: none.
        install: command that installs it.
    """

    name: str
    open: Callable[[TrackedRun], Tracker]
    library: str = ""
    install: str = ""


TRACKERS: dict[str, TrackerEntry] = {}


#: Add a plugin's entry; raises `InputError` if its name is taken.
register_tracker = partial(plugins.register, "tracker", TRACKERS)


def check_trackers(names: Sequence[str]) -> None:
    """Check that trackers and their libraries exist.

    Raises:
        InputError: a tracker is unknown (with the nearest name), or its library is missing.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        entry = TRACKERS[name]
        # A folder of that name, such as wandb's own files, is found as a module without an origin.
        if entry.library and getattr(importlib.util.find_spec(entry.library), "origin", None) is None:
            raise InputError(f"trackers={name}: {entry.library} is not installed; install it with: {entry.install}")


def shown_config(value: Any) -> Any:
    """Return settings without secrets at any depth, and without credentials and queries in URLs."""
    if isinstance(value, Mapping):
        return {name: shown_config(item) for name, item in value.items() if not (SECRET.search(str(name)) and item)}
    if isinstance(value, list | tuple):
        return [shown_config(item) for item in value]
    if isinstance(value, str):
        return QUERY.sub(r"\1?***", CREDENTIALS.sub("***@", value))
    return value


class Trackers:
    """All trackers of a run; each receives all numbers once, in order. A resumed run continues their records.

    They are opened and called in a separate thread, so a slow server does not delay the run. Libraries are imported
    here, because imports in two threads can deadlock.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], project: str, config: Mapping[str, Any], say: Callable[[str], None]
    ) -> None:
        self.folder, self.say = folder, say
        self._names = list(names)
        self._open: dict[str, Tracker] = {}
        self._state: dict[str, dict[str, Any]] = {}
        self._calls: queue.Queue[Callable[[], object] | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        path = folder / STATE_FILE
        if path.is_file():
            self._state = read_json(path, dict)
        sweep = folder.parent.parent.name if folder.parent.name == "trials" else ""
        for name in names:
            known = self._state.setdefault(name, {"id": "", "iteration": -1})
            run = TrackedRun(folder, project, folder.name, sweep, shown_config(config), known["id"])
            if self._try(name, partial(_import, TRACKERS[name].library)):
                self._calls.put(partial(self._try, name, partial(self._begin, name, run)))
        if not self._calls.empty():
            self._thread = threading.Thread(target=self._tell, name="trackers", daemon=True)
            self._thread.start()

    def write(self, record: Mapping[str, Any], late: bool = False) -> None:
        """Log the tagged numbers of a record to each tracker, unless it already has the iteration.

        Args:
            late: the iteration was logged before, such as an evaluation that a signal interrupted.
        """
        metrics = {tag: float(value) for tag, value in record.items() if "/" in tag and value is not None}
        self._calls.put(partial(self._log, int(record["iteration"]), metrics, late))

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log some episodes of an evaluation to each tracker, before the record of the iteration."""
        if rows:
            self._calls.put(partial(self._show, iteration, rows))

    def close(self, status: str) -> None:
        """Log the end of the run, and wait up to `PATIENCE_S` until everything is logged."""
        if self._thread is None:
            return
        self._calls.put(partial(self._end, status))
        self._calls.put(None)
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            left = ", ".join(self._names)
            self.say(
                f"[rl_agents] trackers {left}: still busy {PATIENCE_S:.0f} s after the run; not waiting any longer"
            )
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

    def _show(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        for name, tracker in list(self._open.items()):
            if iteration > self._state[name]["iteration"]:
                self._try(name, partial(tracker.episodes, iteration, rows))

    def _end(self, status: str) -> None:
        for name, tracker in list(self._open.items()):
            self._try(name, partial(tracker.close, status))
            self._open.pop(name, None)

    def _try(self, name: str, call: Callable[[], Any]) -> bool:
        try:
            call()
        except Exception as error:
            self._open.pop(name, None)
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            self.say(f"[rl_agents] tracker {name} failed and is disabled: {reason}{place_of(error)}; the run continues")
            return False
        return True

    def _save(self) -> None:
        replace_text(self.folder / STATE_FILE, json.dumps(self._state, indent=1) + "\n")


def _import(library: str) -> None:
    if library:
        importlib.import_module(library)


#: Name of the table of episodes.
TABLE = "eval/trajectories"


class WandbTracker:
    """Weights & Biases; ``WANDB_MODE=offline`` writes below the run's folder, for ``wandb sync``."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._wandb: Any = wandb
        self._run: Any = wandb.init(
            project=run.project, name=run.name, group=run.group or None, config=dict(run.config), dir=str(run.folder),
            id=run.known_as or None, resume="allow" if run.known_as else None,
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        self.id = str(self._run.id)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=iteration)

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log a table of this evaluation."""
        table = self._wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])
        self._run.log({TABLE: table}, step=iteration)

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "done" else 1)


class MlflowTracker:
    """MLflow, at ``MLFLOW_TRACKING_URI``: a server, or a file such as ``sqlite:///mlflow.db``, which is the default."""

    def __init__(self, run: TrackedRun) -> None:
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        import mlflow
        from mlflow.entities import Param

        for name in ("mlflow", "alembic"):  # which tell that they make an experiment and its tables
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client: Any = mlflow.MlflowClient()
        self.id = run.known_as
        if self.id:
            self._client.update_run(self.id, status="RUNNING")
        else:
            # Unlike the client, it permits that another trial makes the experiment at the same time.
            experiment = mlflow.set_experiment(run.project).experiment_id
            tags = {"group": run.group} if run.group else {}
            self.id = str(self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id)
        # A parameter cannot change, so a resumed run adds new keys; the file has all current values.
        known = self._client.get_run(self.id).data.params
        new = [Param(_mlflow_name(name), str(value)) for name, value in run.config.items() if name not in known]
        self._client.log_batch(self.id, params=new)
        self._client.log_dict(self.id, dict(run.config), "config.json")

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        values = [Metric(_mlflow_name(name), value, now, iteration) for name, value in metrics.items()]
        self._client.log_batch(self.id, metrics=values)

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows to the run's table."""
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        self._client.log_table(self.id, columns, f"{TABLE}.json")

    def close(self, status: str) -> None:
        self._client.set_terminated(self.id, {"done": "FINISHED", "interrupted": "KILLED"}.get(status, "FAILED"))


def _mlflow_name(name: str) -> str:
    return re.sub(r"[^\w./: -]", "_", name)


class TrackioTracker:
    """Trackio: files of this user (``trackio show``), or what ``TRACKIO_SERVER_URL`` or ``TRACKIO_SPACE_ID`` names."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._trackio: Any = trackio
        # Trackio finds a run by its name, and runs of other folders may have the same one.
        self.id = run.known_as or f"{run.name}-{uuid.uuid4().hex[:6]}"
        self._run: Any = trackio.init(
            project=run.project, name=self.id, group=run.group or None, config=dict(run.config),
            resume="allow", embed=False, private=True,
        )  # fmt: skip

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=iteration)

    def episodes(self, iteration: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log a table of this evaluation."""
        self._run.log({TABLE: self._trackio.Table(data=[dict(row) for row in rows])}, step=iteration)

    def close(self, status: str) -> None:
        self._run.finish()


register_tracker(TrackerEntry("wandb", WandbTracker, "wandb", "pip install wandb"))
register_tracker(TrackerEntry("mlflow", MlflowTracker, "mlflow", "pip install mlflow"))
register_tracker(TrackerEntry("trackio", TrackioTracker, "trackio", "pip install trackio"))
