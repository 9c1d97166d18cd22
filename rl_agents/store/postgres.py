"""A pool in PostgreSQL, where several processes must write to one: what the pool asks of SQLite, in Postgres' words.

Writers take turns by transaction (an advisory lock), so that rows are numbered in the order in which they appear.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rl_agents.errors import InputError
from rl_agents.installation import pip_install
from rl_agents.store.schema import APPLICATION, VERSION, Utf8, migration, script

SCHEMES = ("postgresql://", "postgres://")
TYPES = {"INTEGER PRIMARY KEY": "BIGINT PRIMARY KEY", "INTEGER": "BIGINT", "BLOB": "BYTEA", "REAL": "DOUBLE PRECISION"}
#: Text that Postgres cannot hold: NUL, half of a surrogate pair, and the mark that stands before their codes.
MARK = "\x1a"
UNHEARD_OF = re.compile("[\x00\x1a\ud800-\udfff]")
MARKED = re.compile(f"{MARK}(....)")
SIZE = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
    "AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'calls'::regclass)"
)


def is_postgres(place: object) -> bool:
    """Whether a place is a database's address and not a file."""
    return str(place).startswith(SCHEMES)


def without_password(address: str) -> str:
    """Return an address as messages may show it."""
    address = re.sub(r"//([^:/@]*):[^@]*@", r"//\1@", address)
    return re.sub(r"(password=)[^&]*", r"\1...", address)


class PostgresConnection:
    """As much of `sqlite3.Connection` as the pool uses; its errors are those of `sqlite3`."""

    def __init__(self, address: str, read_only: bool = False) -> None:
        """
        Raises:
            InputError: psycopg is missing, or no server answers.
        """
        try:
            import psycopg
        except ImportError:
            raise InputError(f"a pool in PostgreSQL needs psycopg: pip install {pip_install('postgres')}") from None
        try:
            self._connection = psycopg.connect(address, autocommit=True, application_name="rl_agents pool")
        except psycopg.Error as error:
            raise InputError(f"{without_password(address)}: cannot connect: {error}") from None
        self._errors, self._broken = psycopg.Error, (psycopg.OperationalError, psycopg.InternalError)
        _adapt(self._connection)
        # A commit is on the server's disk when it returns, whatever the database's own default is.
        self._connection.execute(f"SET {'default_transaction_read_only' if read_only else 'synchronous_commit'} = on")

    def execute(self, query: str, values: Sequence[Any] = ()) -> Any:
        """Run a statement with SQLite's question marks and its name for `strpos`; return a cursor."""
        if query == "BEGIN IMMEDIATE":
            query = f"BEGIN; SELECT pg_advisory_xact_lock({APPLICATION})"
        query = query.replace("instr(", "strpos(")
        with self._as_sqlite():
            return self._connection.execute(query.replace("?", "%s") if values else query, values or None)

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each row, without waiting for the server in between."""
        with self._as_sqlite(), self._connection.cursor() as cursor:
            cursor.executemany(query.replace("?", "%s"), rows)

    @contextmanager
    def _as_sqlite(self) -> Iterator[None]:
        try:
            yield
        except self._errors as error:
            kind = sqlite3.OperationalError if isinstance(error, self._broken) else sqlite3.DataError
            raise kind(str(error).strip()) from error

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return not self._connection.closed and self._connection.info.transaction_status.name != "IDLE"

    def close(self) -> None:
        """Hang up."""
        self._connection.close()


def open_postgres(address: str, write: bool) -> PostgresConnection:
    """Connect to a pool, and make its tables where there are none and it is to be written.

    Raises:
        InputError: no server, no pool, or one that a newer version wrote.
    """
    connection = PostgresConnection(address, read_only=not write)
    try:
        if write:
            connection.execute("BEGIN IMMEDIATE")
            if not (version := _version(connection)):
                connection.execute(f"{tables()} CREATE TABLE pool_version AS SELECT {VERSION} AS version;")
            elif version < VERSION:
                connection.execute(f"{migration(version)} UPDATE pool_version SET version = {VERSION};")
            connection.execute("COMMIT")
        if not (version := _version(connection)):
            raise InputError(f"{without_password(address)}: there is no pool in this database")
        if version > VERSION:
            raise InputError(
                f"{without_password(address)}: written by a newer version (schema {version}; this one knows {VERSION})"
            )
    except sqlite3.Error as error:
        connection.close()
        raise InputError(f"{without_password(address)}: cannot open the pool: {error}") from None
    except BaseException:
        connection.close()
        raise
    return connection


def tables() -> str:
    """Return the statements that make an empty pool."""
    numbered = "CREATE TABLE curation (number INTEGER"
    text = script().replace(numbered, f"{numbered} GENERATED BY DEFAULT AS IDENTITY")
    for ours, theirs in TYPES.items():
        text = re.sub(rf"\b{ours}\b", theirs, text)
    return text


def _version(connection: PostgresConnection) -> int:
    if connection.execute("SELECT to_regclass('pool_version')").fetchone()[0] is None:
        return 0
    return int(connection.execute("SELECT version FROM pool_version").fetchone()[0])


def _adapt(connection: Any) -> None:
    """Texts of any characters, numbers as SQLite gives them."""
    from psycopg.adapt import Dumper, Loader
    from psycopg.types.string import StrDumper

    class Text(StrDumper):
        def dump(self, obj: str) -> Any:
            return super().dump(UNHEARD_OF.sub(lambda found: f"{MARK}{ord(found[0]):04x}", obj))

    class Surrogates(Text):
        def dump(self, obj: Any) -> Any:
            return super().dump(obj.decode("utf-8", "surrogatepass"))

    class Truth(Dumper):
        oid = 20  # int8

        def dump(self, obj: bool) -> bytes:
            return b"1" if obj else b"0"

    class TextBack(Loader):
        def load(self, data: Any) -> str:
            return MARKED.sub(lambda found: chr(int(found[1], 16)), bytes(data).decode())

    class Whole(Loader):
        def load(self, data: Any) -> int:
            return int(bytes(data))

    adapters = connection.adapters
    adapters.register_dumper(str, Text)
    adapters.register_dumper(Utf8, Surrogates)
    adapters.register_dumper(bool, Truth)
    adapters.register_loader("text", TextBack)
    adapters.register_loader("numeric", Whole)  # a sum of whole numbers
