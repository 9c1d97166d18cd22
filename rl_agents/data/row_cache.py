"""Rows of a table by id, in an SQLite file of the cache, so that a million tasks are not objects in memory.

Only the ids are in memory, about 80 bytes each. Every version of a changing table leaves a file, so files that were not
opened for `KEPT_DAYS` are deleted when another one is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from rl_agents.data.building import cached_file, new_database, open_finished
from rl_agents.errors import InputError

#: Version of the file's layout.
FORMAT = 1
KEPT_DAYS = 30
_SCHEMA = "CREATE TABLE kept (number INTEGER PRIMARY KEY, id TEXT UNIQUE, split TEXT, value TEXT);"

#: (id, split or empty, JSON value).
KeptRow = tuple[str, str, Any]


class KeptRows:
    """Read-only values by id, safe to use from several threads. Make one with `keep`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._db = open_finished(path)

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM kept")[0][0])

    def __contains__(self, name: object) -> bool:
        return bool(self._rows("SELECT 1 FROM kept WHERE id = ?", name))

    def ids(self) -> tuple[str, ...]:
        return tuple(name for (name,) in self._rows("SELECT id FROM kept ORDER BY number"))

    def splits(self) -> Iterator[tuple[str, str]]:
        yield from self._rows("SELECT id, split FROM kept ORDER BY number")

    def get(self, name: str) -> Any:
        """Return the value with the id ``name``. Raises `KeyError`: there is none."""
        rows = self._rows("SELECT value FROM kept WHERE id = ?", name)
        if not rows:
            raise KeyError(name)
        return json.loads(rows[0][0])

    def _rows(self, statement: str, *values: object) -> list[Any]:
        with self._lock:
            return self._db.execute(statement, values).fetchall()


def keep(name: str, version: str, entries: Callable[[], Iterable[KeptRow]], noun: str = "task") -> KeptRows:
    """Open the cached entries of a table; read ``entries`` first if the cache does not have them.

    Args:
        name: readable part of the file's name.
        version: changes when the entries change.
        noun: name of an entry in messages.

    Raises:
        InputError: two entries of one id, or what ``entries`` raises.
    """
    path = cached_file("tables", name, f"{FORMAT}/{version}", lambda new: _write(new, name, entries(), noun))
    with contextlib.suppress(OSError):  # the cache may be read-only
        os.utime(path)
    return _opened(path)


def _forget_old(folder: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for path in folder.glob("*.sqlite"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                path.unlink()


_opened = lru_cache(maxsize=16)(KeptRows)


def _write(path: Path, name: str, entries: Iterable[KeptRow], noun: str) -> None:
    with new_database(path) as (db, _):
        db.executescript(_SCHEMA)
        db.execute("BEGIN")
        for entry_id, split, value in entries:
            try:
                text = json.dumps(value, ensure_ascii=False)
                db.execute("INSERT INTO kept (id, split, value) VALUES (?, ?, ?)", (entry_id, split, text))
            except sqlite3.IntegrityError:
                raise InputError(f"{name}: the {noun} id {entry_id!a} occurs twice") from None
        db.execute("COMMIT")
    _forget_old(path.parent)
