"""Writing to a store: one thread, group commit, and a future that is done when its records are on disk."""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from rl_agents.errors import InputError
from rl_agents.store.files import Lock, open_writing
from rl_agents.store.packing import Calls
from rl_agents.store.records import Call, Event, Record
from rl_agents.store.schema import ROWS, TABLES

logger = logging.getLogger(__name__)

#: The event after which updates and sessions of later iterations no longer count.
RESUMED = "resumed"


class PoolError(RuntimeError):
    """The store can no longer be written to; the message names the file and the reason."""


class PoolSink(Protocol):
    """Where records go."""

    def add(self, *records: Record) -> Future[None]:
        """Add records, all or none of them; the future is done when they are on disk."""

    def flush(self, timeout_s: float) -> None:
        """Wait until all added records are on disk; raises `PoolError` or TimeoutError."""


#: Records to write, none for a flush, and the future of their caller.
_Request = tuple[tuple[Record, ...], Future[None]]


class PoolWriter:
    """The only writer of a store.

    Records are on disk (SQLite's WAL, ``synchronous=FULL``) when their future is done, in the order in which they
    were added, and those of one `add` together or not at all. A record whose key exists already is skipped, so a
    caller that does not know whether an `add` succeeded can add again. If the disk is full or the file is lost, the
    waiting futures and all later ones get the same `PoolError`. A record that cannot be stored is named in the log, and
    does not affect other adds. Thread-safe.
    """

    def __init__(self, path: Path | str, commit_s: float = 0.005, commit_rows: int = 256, wait_s: float = 0.0) -> None:
        """
        Args:
            path: of the file, which is created (mode 600) if it does not exist.
            commit_s: seconds that a record waits for others to be committed with.
            commit_rows: number of records that are committed without waiting for more.
            wait_s: seconds that another writer has to release the file: `PREDECESSOR_S` when taking over from a
                process that may be ending, 0 when a person waits for the answer.

        Raises:
            InputError: another writer has the file, it is not a store, or it cannot be created.
        """
        path, self._name = Path(path), str(path)
        self._commit_s, self._commit_rows = commit_s, commit_rows
        self._lock = Lock(path, wait_s)
        try:
            self._connection = open_writing(path)
            self._calls = Calls(self._connection)
            self._read_numbers()
        except BaseException:
            self._lock.release()
            raise
        self._requests: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._problem: Exception | None = None
        self._refused = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="pool-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def add(self, *records: Record) -> Future[None]:
        """Add records, all or none of them; they must not be changed afterwards.

        Returns:
            A future that is done when they are on disk, or fails with `InputError` (a record that cannot be stored;
            others are not affected) or `PoolError` (nothing can be stored any more). It cannot be canceled.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._gate:
            if not self._closed:
                self._requests.put((records, future))
                return future
        future.set_exception(PoolError(f"{self._name}: the pool is closed"))
        return future

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all added records are on disk.

        Raises:
            PoolError: they cannot be written.
            TimeoutError: it takes longer.
        """
        self.add().result(timeout_s)

    def close(self) -> None:
        """Write the added records and release the file; further records are refused."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._requests.put(None)
        self._thread.join()
        atexit.unregister(self.close)

    def __enter__(self) -> PoolWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        last = False
        while not last:
            requests, last = self._gather()
            self._commit(requests)
        with contextlib.suppress(sqlite3.Error):  # a full disk: nothing is lost, the next writer reads the WAL
            self._connection.close()
        self._lock.release()

    def _gather(self) -> tuple[list[_Request], bool]:
        """Return the requests of the next commit, and whether they are the last."""
        request = self._requests.get()
        requests: list[_Request] = []
        rows, deadline = 0, time.monotonic() + self._commit_s
        while request is not None:
            requests.append(request)
            rows += len(request[0])
            left = deadline - time.monotonic()
            if not request[0] or rows >= self._commit_rows or (left <= 0 and self._requests.empty()):
                return requests, False
            try:
                request = self._requests.get(timeout=max(left, 0))
            except queue.Empty:
                return requests, False
        return requests, True

    def _commit(self, requests: Sequence[_Request]) -> None:
        """Commit requests together, or each by itself if one of them cannot be stored."""
        problem = self._problem
        if problem is None and any(records for records, _ in requests):
            problem = self._transact([record for records, _ in requests for record in records])
        if problem is not None and self._problem is None and len(requests) > 1:
            for request in requests:
                self._commit([request])
            return
        if isinstance(problem, InputError):  # most callers do not look at their futures
            self._refused += 1
            logger.error("%s (%d so far)", problem, self._refused)
        for _, future in requests:
            future.set_result(None) if problem is None else future.set_exception(problem)

    def _transact(self, records: Sequence[Record]) -> Exception | None:
        """Write records in one transaction; return the problem, and keep it if the records are not its cause."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._write(records)
            self._connection.execute("COMMIT")
            return None
        except Exception as error:
            kinds = (sqlite3.OperationalError, sqlite3.InternalError)
            if isinstance(error, kinds) or type(error) is sqlite3.DatabaseError:
                self._problem = PoolError(f"{self._name}: cannot write to the pool: {error}")
                logger.error("%s; nothing is recorded from now on", self._problem)  # most callers flush much later
            self._roll_back()
            return self._problem or InputError(f"{self._name}: {self._culprit(records)} cannot be stored: {error}")

    def _culprit(self, records: Sequence[Record]) -> str:
        """Name the first record that cannot be stored after those before it, and count the others."""
        bad = records[0]
        with contextlib.suppress(Exception):
            self._connection.execute("BEGIN IMMEDIATE")
            for bad in records:
                self._write([bad])
        self._roll_back()
        names = [field.name for field in fields(bad)[:2]] if isinstance(bad, Record) else []
        others = f" and the {len(records) - 1} records added with it" if len(records) > 1 else ""
        return f"{type(bad).__name__}({', '.join(f'{name}={getattr(bad, name)!r}' for name in names)}){others}"

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        self._calls.forget()
        try:
            self._read_numbers()
        except sqlite3.Error as error:
            self._problem = self._problem or PoolError(f"{self._name}: cannot write to the pool: {error}")

    def _read_numbers(self) -> None:
        """Read the current row number and epoch; all tables share one sequence of numbers."""
        tables = ("prompts", "calls", *(table.name for table in TABLES.values()))
        last = (self._connection.execute(f"SELECT max(number) FROM {table}").fetchone()[0] for table in tables)
        self._number = max(number or 0 for number in last)
        epoch = self._connection.execute("SELECT max(number) FROM events WHERE kind = ?", (RESUMED,)).fetchone()[0]
        self._epoch = epoch or 0

    def _write(self, records: Sequence[Record]) -> None:
        """Write calls one by one, since later ones extend earlier ones, and the other records kind by kind."""
        together: defaultdict[type, list[list[Any]]] = defaultdict(list)
        for record in records:
            if isinstance(record, Call):
                self._number += 1
                self._calls.insert(self._number, record)
            else:
                together[type(record)].append(self._cells(record))
        for kind, cells in together.items():
            self._connection.executemany(ROWS[kind].insert, cells)

    def _cells(self, record: Record) -> list[Any]:
        rows = ROWS[type(record)]
        self._number += 1
        cells = [self._number, *rows.row(record)]
        if rows.table.epoch:
            cells.append(self._epoch)
        if rows.table.clock:
            cells.append(time.time())
        if isinstance(record, Event) and record.kind == RESUMED:
            self._epoch = self._number
        return cells
