"""Reading a store, also while a run writes to it, in memory that does not grow with its size."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

from rl_agents.data.trajectory import Trajectory
from rl_agents.errors import InputError
from rl_agents.store.files import open_reading
from rl_agents.store.packing import COLUMNS, Calls
from rl_agents.store.records import (
    BatchRow,
    Call,
    Credit,
    Event,
    Exchange,
    Outcome,
    RewardNote,
    Session,
    SessionStart,
    TokenLoss,
    trajectory_of,
)
from rl_agents.store.schema import ROWS, load_text

#: Rows per query.
PAGE = 256
#: Finds the resume that discarded the iteration of a session.
TAKEN_BACK = (
    "SELECT 1 FROM events e WHERE e.kind = 'resumed' AND e.number > sessions.number "
    "AND e.iteration <= sessions.iteration"
)
Kept = TypeVar("Kept")
T = TypeVar("T")
State = Literal["ready", "leased", "trained"]


@dataclass(frozen=True, slots=True)
class StoreQuery:
    """Selects sessions; None: any.

    Attributes:
        lost: of iterations that a resume discarded and the run then repeated; ``ids`` finds them in any case.
    """

    ids: Sequence[str] | None = None
    kind: str | None = None
    iteration: int | None = None
    env: str | None = None
    task: str | None = None
    group: int | None = None
    success: bool | None = None
    failed: bool | None = None
    state: State | None = None
    min_return: float | None = None
    max_return: float | None = None
    lost: bool | None = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A session with its state and its sums.

    Attributes:
        state: ``ready``; ``leased``: trained on, but no checkpoint contains those weights yet; ``trained``.
        learned_in: the iteration that trained on it; -1: none.
        total: undiscounted sum of its rewards.
        tokens: number of sampled tokens.
    """

    session: Session
    state: State
    learned_in: int
    steps: int
    total: float
    tokens: int


class PoolReader:
    """Reads a store.

    Every method reads the current content; iterators include rows that are added meanwhile. Not thread-safe.
    """

    def __init__(self, path: Path | str) -> None:
        """
        Raises:
            InputError: no such file, not a store, or written by another version.
        """
        self.name = str(path)
        self._connection = open_reading(Path(path))
        self._calls = Calls(self._connection)

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> PoolReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def calls(self, ids: Sequence[int] | None = None, test: str = "TRUE", *values: Any) -> Iterator[Call]:
        """Yield calls in the order of writing.

        Args:
            ids: only these calls; unknown ids are skipped.
            test: of the table's columns, with ``values`` for its question marks.
        """
        for row in self._pages("calls", COLUMNS, [test], values, ids):
            yield self._calls.whole(row[1:])

    def sessions(self, where: StoreQuery = StoreQuery()) -> list[Session]:
        """Return all sessions at once, in the order of writing."""
        return [stored.session for stored in self.stored(where)]

    def trajectories(self, where: StoreQuery = StoreQuery()) -> Iterator[Trajectory]:
        """Yield trajectories in the order of writing."""
        return map(self.trajectory, self.stored(where))

    def trajectory(self, stored: Stored) -> Trajectory:
        """Return a session with its steps."""
        outcomes = self.outcomes(stored.session.id)
        calls = {call.id: call for call in self.calls([outcome.call for outcome in outcomes])}
        if missing := {outcome.call for outcome in outcomes} - set(calls):
            raise InputError(f"{self.name}: call {min(missing)} of session '{stored.session.id}' is missing")
        return trajectory_of(stored.session, outcomes, calls)

    def stored(self, where: StoreQuery = StoreQuery()) -> Iterator[Stored]:
        """Yield sessions with their states and sums, in the order of writing."""
        rows = ROWS[Session]
        found = self._pages("sessions", rows.columns, *_conditions(where), where.ids)
        while page := [rows.record(row[1:]) for row in islice(found, PAGE)]:
            yield from self._described(page, where)

    def outcomes(self, session: str) -> list[Outcome]:
        """Return the environment's replies to a session's calls, in the order of its steps."""
        return self._all(Outcome, "session = ? ORDER BY ordinal", session)

    def openings(self) -> list[SessionStart]:
        return self._all(SessionStart)

    def exchanges(self, session: str | None = None) -> list[Exchange]:
        return self._all(Exchange, *(("TRUE",) if session is None else ("session = ?", session)))

    def reward_notes(self, session: str) -> list[RewardNote]:
        return self._all(RewardNote, "session = ?", session)

    def credit(self, session: str) -> list[Credit]:
        return self._all(Credit, "session = ?", session)

    def token_losses(self, session: str, ordinal: int) -> list[TokenLoss]:
        """Return what each loss component added at a step's tokens, in the order of writing."""
        return self._all(TokenLoss, "session = ? AND ordinal = ?", session, ordinal)

    def batches(self) -> list[BatchRow]:
        """Return the training batches in the order of writing, without those that a resume discarded."""
        return self._all(BatchRow, table="current_batches")

    def events(self) -> list[Event]:
        return self._all(Event)

    def names(self, beginning: str, most: int) -> list[str]:
        query = "SELECT id FROM sessions WHERE substr(id, 1, ?) = ? ORDER BY number DESC LIMIT ?"
        return [load_text(row[0]) for row in self.rows(query, len(beginning), beginning, most)]

    def rows(self, query: str, *values: Any) -> list[Any]:
        """Return the rows of any query; docs/reference/pool.md describes the tables."""
        return self._connection.execute(query, values).fetchall()

    def one(self, query: str, *values: Any) -> Any:
        return self._connection.execute(query, values).fetchone()

    def _all(self, kind: type[Kept], test: str = "TRUE", *values: Any, table: str = "") -> list[Kept]:
        rows = ROWS[kind]
        order = "" if "ORDER" in test else " ORDER BY number"
        query = f"SELECT {rows.columns} FROM {table or rows.table.name} WHERE {test}{order}"
        return [rows.record(row) for row in self._connection.execute(query, values)]

    def _pages(
        self, table: str, columns: str, tests: Sequence[str], values: Sequence[Any], ids: Sequence[Any] | None
    ) -> Iterator[sqlite3.Row]:
        """Yield rows, their number first, page by page: no statement stays open, which would block the writer."""
        for part in [None] if ids is None else parts(ids):
            last, chosen = 0, [] if part is None else [f"id IN ({marks(part)})"]
            test = " AND ".join(["number > ?", *tests, *chosen])
            query = f"SELECT number, {columns} FROM {table} WHERE {test} ORDER BY number LIMIT {PAGE}"
            while page := self._connection.execute(query, (last, *values, *(part or ()))).fetchall():
                yield from page
                last = page[-1][0]

    def _described(self, sessions: Sequence[Session], where: StoreQuery) -> Iterator[Stored]:
        ids = [session.id for session in sessions]
        states = self._states(ids)
        totals = self._totals(ids)
        for session in sessions:
            state, iteration = states.get(session.id, ("ready", -1))
            steps, total, tokens = totals.get(session.id, (0, 0.0, 0))
            stored = Stored(session, state, iteration, steps, total, tokens)
            if _wanted(stored, where):
                yield stored

    def _states(self, ids: Sequence[str]) -> dict[str, tuple[State, int]]:
        query = f"SELECT session, state, iteration FROM lease WHERE session IN ({marks(ids)})"
        return {session: (state, iteration) for session, state, iteration in self._connection.execute(query, ids)}

    def _totals(self, ids: Sequence[str]) -> dict[str, tuple[int, float, int]]:
        query = (
            "SELECT o.session, count(*), sum(o.reward), coalesce(sum(c.response_tokens), 0) FROM outcomes o "
            f"LEFT JOIN calls c ON c.id = o.call WHERE o.session IN ({marks(ids)}) GROUP BY o.session"
        )
        return {
            row[0]: (row[1], math.nan if row[2] is None else row[2], row[3])
            for row in self._connection.execute(query, ids)
        }


def _conditions(where: StoreQuery) -> tuple[list[str], list[Any]]:
    columns = {
        "kind": where.kind, "iteration": where.iteration, "env": where.env, "task_id": where.task,
        "group_id": where.group, "success": where.success, "failed": where.failed,
    }  # fmt: skip
    chosen = {name: value for name, value in columns.items() if value is not None}
    tests = [f"{name} = ?" for name in chosen]
    if where.lost is not None and where.ids is None:
        tests.append(f"{'' if where.lost else 'NOT '}EXISTS ({TAKEN_BACK})")
    return tests, list(chosen.values())


def _wanted(stored: Stored, where: StoreQuery) -> bool:
    return (
        (where.state is None or stored.state == where.state)
        and (where.min_return is None or stored.total >= where.min_return)
        and (where.max_return is None or stored.total <= where.max_return)
    )


def parts(ids: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(ids), PAGE):
        yield ids[at : at + PAGE]


def marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
