"""The displayed runs: their folders, files, and whether they are running."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rl_agents.config.aliases import canonical
from rl_agents.errors import InputError, nearest, similar_file
from rl_agents.reporting.run_folder import Record, RunFolder
from rl_agents.store.files import POOL_FILE
from rl_agents.store.reader import PoolReader
from rl_agents.web.errors import ApiError

#: Seconds after its last write for which a run counts as live.
LIVE_S = 90.0
#: (bytes, time of the last change in ns) of a file.
Written = tuple[int, int]
TRIALS, RESULTS = "trials", "results.json"


@dataclass
class Run:
    """One run.

    Attributes:
        name: unique name in addresses and titles.
        folder: its output folder; for a single pool, the folder that contains it.
        pool: its pool's file, which may not exist.
        alone: there is only a pool, no run folder.
        sweep: name of its sweep; empty: none.
    """

    name: str
    folder: RunFolder
    pool: Path
    alone: bool = False
    sweep: str = ""
    _records: tuple[Written, list[Record]] = field(default=((-1, -1), []), repr=False)
    _settings: tuple[Written, Record] = field(default_factory=lambda: ((-1, -1), {}), repr=False)

    def settings(self) -> Record:
        """Return config.yaml, read again only if it changed; empty if it cannot be read."""
        key = (0, 0) if self.alone else _written(self.folder.config_file)
        if self._settings[0] != key:
            self._settings = (key, _plain_yaml(self.folder.config_file) if key != (0, 0) else {})
        return self._settings[1]

    def records(self) -> list[Record]:
        """Return the lines of metrics.jsonl, read again only if they changed."""
        if self.alone:
            return []
        key = _written(self.folder.metrics_file)
        if self._records[0] != key:
            self._records = (key, self.folder.read_metrics() if key != (0, 0) else [])
        return self._records[1]

    def summary(self) -> Record:
        try:
            return {} if self.alone else self.folder.read_summary()
        except (InputError, OSError):
            return {}

    @property
    def has_pool(self) -> bool:
        return self.pool.is_file()

    def reader(self) -> PoolReader:
        """Open its pool; each answer opens it again, so that no file state is kept.

        Raises:
            ApiError: there is none, or it cannot be read.
        """
        if not self.has_pool:
            raise ApiError(404, f"run {self.name} has no pool (save_pool=false?)", "no_pool")
        try:
            return PoolReader(self.pool)
        except InputError as error:
            raise ApiError(409, str(error), "unreadable_pool") from None

    def stamp(self) -> str:
        """Return a text that changes when the run writes something."""
        return "-".join(f"{size:x}.{at // 1_000_000:x}" for size, at in self._files())

    def is_live(self) -> bool:
        """Return whether it was written within `LIVE_S`."""
        newest = max(at for _, at in self._files())
        return time.time() - newest / 1e9 < LIVE_S and self.summary().get("status") != "done"

    def _files(self) -> list[Written]:
        """Return the state of the files that a run writes continuously."""
        return [_written(file) for file in (self.folder.metrics_file, self.pool, Path(f"{self.pool}-wal"))]


def _plain_yaml(path: Path) -> Record:
    try:
        with path.open("rb") as file:
            found = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return canonical(found) if isinstance(found, dict) else {}
    except (yaml.YAMLError, OSError, ValueError):
        return {}


def _written(path: Path) -> Written:
    """Return size and time of change of a file; zeros if it does not exist."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


@dataclass
class Catalog:
    """All displayed runs.

    Attributes:
        runs: by name, in the order of the command line.
        sweeps: name -> folder of a sweep.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    sweeps: dict[str, Path] = field(default_factory=dict)

    def run(self, name: str) -> Run:
        """Return a run. Raises `ApiError`: unknown name."""
        if name not in self.runs:
            raise ApiError(404, f"unknown run '{name}': {nearest(name, self.runs)}", "unknown_run", "run")
        return self.runs[name]

    def refresh(self) -> None:
        """Add new trials of sweeps."""
        known = {run.folder.path for run in self.runs.values() if not run.alone}
        for name, path in self.sweeps.items():
            for folder in _trials(path):
                if folder not in known:
                    _add(self, _run(folder), name)


def find_runs(places: Sequence[str]) -> Catalog:
    """Return the runs of paths: folders of runs or sweeps, or files of pools.

    Raises:
        InputError: a path is none of these.
    """
    catalog = Catalog()
    seen: set[Path] = set()
    for place in places:
        path = Path(place)
        if not path.exists():
            hint = similar_file(path)
            raise InputError(f"{place}: no such folder{hint and f': {hint}'}")
        elif (whole := path.resolve()) not in seen:
            seen.add(whole)
            if _is_sweep(path):
                catalog.sweeps[_free(whole.name, catalog.sweeps)] = whole
                catalog.refresh()
            elif whole not in {run.folder.path for run in catalog.runs.values()}:
                _add(catalog, _run(path), "")
    return catalog


def _is_sweep(path: Path) -> bool:
    if not (path / TRIALS).is_dir() or (path / "config.yaml").is_file():
        return False
    if not _trials(path):
        raise InputError(f"{path}: a sweep without runs so far (trials/ is empty)")
    return True


def _trials(path: Path) -> list[Path]:
    return sorted(file.parent for file in (path / TRIALS).glob("*/config.yaml"))


def _run(path: Path) -> Run:
    if path.is_file():
        PoolReader(path).close()  # refuses other files
        return Run(
            path.stem if path.name != POOL_FILE else path.resolve().parent.name, RunFolder(path.parent), path, True
        )
    if not path.is_dir():
        raise InputError(f"{path}: neither a folder nor a pool file")
    folder = RunFolder(path.resolve())
    if not folder.config_file.is_file() and not folder.pool.is_file():
        raise InputError(f"{path}: not the output folder of a run (no config.yaml, no {POOL_FILE})")
    return Run(path.resolve().name, folder, folder.pool)


def _add(catalog: Catalog, run: Run, sweep: str) -> None:
    run.name, run.sweep = _free(f"{sweep}/{run.name}" if sweep else run.name, catalog.runs), sweep
    catalog.runs = {**catalog.runs, run.name: run}  # other threads may be iterating over the old one


def _free(name: str, taken: dict[str, Any]) -> str:
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free
