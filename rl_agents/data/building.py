"""Build an index file of the cache: complete or absent, in one process while others wait, with progress on stderr."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rl_agents.cache import cache_dir

SECONDS_BETWEEN_REPORTS = 5.0

#: Called with a description of the work and the share that is done (None if unknown).
Report = Callable[[str, float | None], None]

_SETTINGS = "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32000;"


@contextlib.contextmanager
def new_database(path: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Yield a new SQLite file and a folder for scratch files; at the end the file replaces ``path``.

    If the body raises, nothing remains.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent) as folder:
        unfinished = Path(folder) / "new.sqlite"
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
            db.executescript(_SETTINGS)
            yield db, Path(folder)
        os.replace(unfinished, path)


def cached_file(folder: str, name: str, version: str, build: Callable[[Path], None]) -> Path:
    """Return a database of the cache; ``build`` writes it first if it is absent.

    Args:
        folder: of the cache.
        name: readable part of the file's name.
        version: changes when the content or its form changes.
    """
    digest = hashlib.sha256(version.encode()).hexdigest()[:16]
    path = cache_dir() / folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[-60:]}-{digest}.sqlite"
    if not path.is_file():
        with only_one(path):
            if not path.is_file():
                build(path)
    return path


def open_finished(path: Path) -> sqlite3.Connection:
    """Open a file that never changes, for all threads."""
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True, check_same_thread=False)


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a lock next to ``path``: of several processes that need the same file, one builds it and the others wait."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def paced(report: Report) -> Report:
    """Return ``report``, limited to one call every few seconds and with the elapsed seconds."""
    started = last = time.monotonic()

    def paced_report(text: str, share: float | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS:
            last = now
            report(f"{text}, {now - started:.0f} s", share)

    return paced_report


def printed(label: str) -> Report:
    def print_report(text: str, share: float | None) -> None:
        done = "" if share is None else f" ({share:.0%} of the file)"
        print(f"{label}: {text}{done}", file=sys.stderr, flush=True)

    return print_report
