"""The tables of a store, and the rows of all records except `Call` (see `rl_agents.store.packing`)."""

from __future__ import annotations

import json
import types
import typing
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from rl_agents.store.records import (
    BatchRow,
    Credit,
    Event,
    Exchange,
    Outcome,
    Record,
    RewardNote,
    Session,
    SessionStart,
    TokenLoss,
)

#: In the file's header: its application ("rlap") and schema version.
APPLICATION, VERSION = 0x726C6170, 3


@dataclass(frozen=True)
class Table:
    """The table of one kind of record.

    Attributes:
        key: a record with an existing key is skipped; empty: every record counts.
        index: columns of an index.
        clock: also store the time of writing (column ``at``, seconds since 1970), for people.
        epoch: also store the number of the last ``resumed`` event, as part of the key: an update that is repeated after
            a resume is another row.
    """

    name: str
    key: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    clock: bool = False
    epoch: bool = False


TABLES: dict[type, Table] = {
    Outcome: Table("outcomes", key=("session", "ordinal")),
    Session: Table("sessions", key=("id",), index=("iteration", "group_id"), clock=True),
    BatchRow: Table("batches", key=("session", "iteration", "update", "position", "epoch"), epoch=True),
    Credit: Table("credit", key=("session", "ordinal", "iteration", "update", "epoch"), epoch=True),
    TokenLoss: Table("token_losses", ("session", "ordinal", "component", "iteration", "update", "epoch"), epoch=True),
    Exchange: Table("exchanges", key=("session", "call", "state"), index=("session",)),
    SessionStart: Table("openings", key=("session",), clock=True),
    RewardNote: Table("reward_notes", index=("session",), clock=True),
    Event: Table("events", clock=True),
}
CALLS = """
CREATE TABLE prompts (number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, ids BLOB NOT NULL);
CREATE TABLE calls (number INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, parent INTEGER NOT NULL,
  policy_version INTEGER NOT NULL, finish_reason TEXT NOT NULL, seed INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
  response_tokens INTEGER NOT NULL, prompt INTEGER, shared INTEGER NOT NULL, rest BLOB NOT NULL,
  response BLOB NOT NULL, logprobs BLOB NOT NULL, version_spans TEXT);
"""
#: The valid rows, for readers with other tools.
VIEWS = """
CREATE VIEW current_batches AS SELECT b.* FROM batches b WHERE NOT EXISTS (SELECT 1 FROM events e
  WHERE e.kind = 'resumed' AND e.number > b.epoch AND e.iteration <= b.iteration);
CREATE VIEW lease AS SELECT b.session, b.iteration, CASE WHEN EXISTS (SELECT 1 FROM events e
  WHERE e.kind IN ('checkpoint', 'resumed') AND e.number > b.number AND e.iteration > b.iteration)
  THEN 'trained' ELSE 'leased' END AS state, b.number FROM current_batches b
  WHERE b.number = (SELECT max(c.number) FROM current_batches c WHERE c.session = b.session);
"""
SQL_TYPES = {int: "INTEGER", bool: "INTEGER", float: "REAL", str: "TEXT", dict: "TEXT", list: "BLOB"}


def script() -> str:
    """Return the statements that create an empty store."""
    return "\n".join([CALLS, *(_create(kind, table) for kind, table in TABLES.items()), VIEWS])


def _create(kind: type, table: Table) -> str:
    own = [
        f'"{name}" {SQL_TYPES[plain]}{"" if empty else " NOT NULL"}' for name, (plain, empty) in _types(kind).items()
    ]
    more = ["epoch INTEGER NOT NULL"] * table.epoch + ["at REAL NOT NULL"] * table.clock
    unique = [f"UNIQUE ({_quoted(table.key)})"] if table.key else []
    cells = ", ".join(["number INTEGER PRIMARY KEY", *own, *more, *unique])
    text = f"CREATE TABLE {table.name} ({cells});"
    if table.index:
        text += f"\nCREATE INDEX {table.name}_by_{table.index[0]} ON {table.name} ({_quoted(table.index)});"
    return text


def _types(kind: type) -> dict[str, tuple[type, bool]]:
    """Return the plain type of each field of a data class, and whether it can be NULL."""
    hints = typing.get_type_hints(kind)
    return {field.name: _plain(hints[field.name], field.name == "anchor") for field in fields(kind)}


def _plain(hint: Any, empty: bool) -> tuple[type, bool]:
    origin = typing.get_origin(hint)
    if origin is Literal:
        return str, empty
    if origin is types.UnionType:  # X | None
        return _plain(next(part for part in typing.get_args(hint) if part is not type(None)), True)
    return origin or hint, empty


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def store_text(value: str) -> str | bytes:
    """Return text for SQLite: bytes if it contains half a surrogate pair, which UTF-8 cannot encode."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def load_text(cell: str | bytes) -> str:
    """Inverse of `store_text`."""
    return cell if isinstance(cell, str) else cell.decode("utf-8", "surrogatepass")


def store_json(value: Mapping[str, Any]) -> str | bytes:
    return store_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"))) if value else "{}"


def store_float(value: float) -> float | str:
    """Return a number for SQLite, which has no NaN."""
    value = float(value)
    return value if value == value else "nan"


Cell = Callable[[Any], Any]
STORE: dict[type, Cell] = {int: int, bool: int, float: store_float, str: store_text, dict: store_json}
LOAD: dict[type, Cell] = {int: int, bool: bool, float: float, str: load_text, dict: lambda c: json.loads(load_text(c))}
STORE[list], LOAD[list] = lambda v: array("f", v).tobytes(), lambda c: array("f", c).tolist()


def _maybe(convert: Cell) -> Cell:
    return lambda value: None if value is None else convert(value)


class Rows:
    """Converts records of one kind to rows and back.

    Attributes:
        insert: statement whose parameters are a number, `row`, and the table's additional columns.
        columns: selected by a query for `record`.
    """

    def __init__(self, kind: type, table: Table) -> None:
        self.kind, self.table = kind, table
        plain = _types(kind)
        self._store = [(name, _maybe(STORE[t]) if empty else STORE[t]) for name, (t, empty) in plain.items()]
        self._load = [_maybe(LOAD[t]) if empty else LOAD[t] for t, empty in plain.values()]
        self._anchor = list(plain).index("anchor") if "anchor" in plain else -1
        self.columns = _quoted(plain)
        more = ["epoch"] * table.epoch + ["at"] * table.clock
        marks = ", ".join("?" * (1 + len(plain) + len(more)))
        into = f"{table.name} ({', '.join(['number', self.columns, *more])})"
        self.insert = f"INSERT INTO {into} VALUES ({marks}) ON CONFLICT DO NOTHING"

    def row(self, record: Record) -> list[Any]:
        cells = [store(getattr(record, name)) for name, store in self._store]
        if isinstance(record, Outcome) and record.anchor == record.observation:
            cells[self._anchor] = None
        return cells

    def record(self, cells: Sequence[Any]) -> Any:
        values = [load(cell) for load, cell in zip(self._load, cells, strict=True)]
        if self.kind is Outcome and values[self._anchor] is None:
            values[self._anchor] = values[self._anchor - 1]
        return self.kind(*values)


ROWS: dict[type, Rows] = {kind: Rows(kind, table) for kind, table in TABLES.items()}
