"""Building an index file: whole or absent, by one process while the others wait, with progress on stderr."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SECONDS_BETWEEN_REPORTS = 5.0

#: Called with what is being done and the share that is done (None when unknown).
Report = Callable[[str, float | None], None]

_SETTINGS = "PRAGMA page_size = 8192; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -32000;"


@contextlib.contextmanager
def new_database(path: Path) -> Iterator[tuple[sqlite3.Connection, Path]]:
    """Yield a fresh SQLite file, and a folder for scratch files alongside it; at the end it takes ``path``'s place.

    When the body raises, nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent) as folder:
        unfinished = Path(folder) / "new.sqlite"
        with contextlib.closing(sqlite3.connect(unfinished, isolation_level=None)) as db:
            db.executescript(_SETTINGS)
            yield db, Path(folder)
        os.replace(unfinished, path)


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Hold a lock next to ``path``: of several processes that want the same file, one builds it, the others wait."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def paced(report: Report) -> Report:
    """Return ``report``, called every few seconds at most and with the seconds that have passed."""
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
