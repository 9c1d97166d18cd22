"""Opening the file of a store: checks of its format, and the lock of its writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from rl_agents.durable import flush
from rl_agents.errors import InputError
from rl_agents.store.schema import APPLICATION, VERSION, script

POOL_FILE = "pool.sqlite"
PRIVATE = 0o600
#: How long a statement waits while another program (a person's sqlite3 shell, say) holds the file.
BUSY_S = 30.0
#: Seconds to wait until an ending process releases the file, and between two attempts to lock it.
PREDECESSOR_S, POLL_S = 20.0, 0.05


def pool_file(place: Path | str) -> Path:
    """Return the absolute path of a store, given its file or the folder of a run.

    Raises:
        InputError: there is no such file.
    """
    path = Path(place)
    file = path / POOL_FILE if path.is_dir() else path
    if not file.exists():
        raise InputError(f"{file}: no such pool")
    return file.absolute()


def open_reading(path: Path) -> sqlite3.Connection:
    """Open a store read-only, with or without an active writer.

    Raises:
        InputError: no such file, not a store, or written by another version.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such pool")
    # In a read-only folder SQLite cannot create the -shm file; a store without a writer does not need it.
    still = not os.access(path.parent, os.W_OK, effective_ids=True) and not Path(f"{path}-wal").exists()
    address = f"file:{quote(str(path.absolute()))}?mode=ro{'&immutable=1' * still}"
    with _connected(path, address) as connection:
        if not _is_begun(connection, path):
            raise InputError(f"{path}: the pool is empty: its writer died before it began")
        return connection


def open_writing(path: Path) -> sqlite3.Connection:
    """Open a store for writing, or create it (mode 600). The caller holds its `Lock`.

    Raises:
        InputError: the file cannot be created, is not a store, or was written by another version.
    """
    with contextlib.suppress(FileExistsError):  # created only here: closing an open file drops SQLite's own locks
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))
        flush(path.parent)
    with _connected(path, path.absolute()) as connection:
        begun = _is_begun(connection, path)
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise InputError(f"{path}: this file system cannot hold a pool (SQLite's WAL mode); use a local disk")
        connection.execute("PRAGMA synchronous = FULL")
        if not begun:
            header = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
            connection.executescript(f"BEGIN IMMEDIATE; {script()} {header} COMMIT;")
        return connection


def _is_begun(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether the file has tables; raise `InputError` if they are not those of a store of this version."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if not tables and not application:
        return False
    if application != APPLICATION:
        raise InputError(f"{path}: a database, but not a pool")
    if version != VERSION:
        age = "a newer" if version > VERSION else "an older"
        raise InputError(f"{path}: written by {age} version (schema {version}; this one knows {VERSION})")
    return True


@contextlib.contextmanager
def _connected(path: Path, address: str | Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection to ``address``, closed only if the block raises; errors name ``path``."""
    with _named(path):
        connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_S, check_same_thread=False)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise InputError(f"{path}: cannot open the pool: {error}") from None
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: not a pool, or a damaged one: {error}") from None


class Lock:
    """The lock of a file's only writer; it ends with the process, even if the process is killed.

    It is a separate file (``pool.sqlite.lock``), since SQLite's locks on the store last for one transaction.
    """

    def __init__(self, path: Path, wait_s: float = 0.0, rule: str = "a pool has one writer") -> None:
        """
        Args:
            path: the file to write; the lock is next to it.
            wait_s: seconds that another writer has to release it, since it may be ending.
            rule: for the message, why there is no second writer.

        Raises:
            InputError: another writer is active, or the folder is missing or cannot be written to.
        """
        file = Path(f"{path}.lock")
        try:
            self._descriptor = os.open(file, os.O_CREAT | os.O_RDWR, PRIVATE)
        except OSError as error:
            raise InputError(f"{path}: cannot write a pool there: {error.strerror}") from None
        try:
            if not self._taken(wait_s):
                owner = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
                raise InputError(f"{path}: already written to by process {owner or '?'}; {rule}")
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _taken(self, wait_s: float) -> bool:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
            time.sleep(POLL_S)

    def release(self) -> None:
        os.close(self._descriptor)
