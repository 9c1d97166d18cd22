"""The learner's numbers of every sampled token, in a file next to the store (``run.py replay RUN --tokens``).

The store has one advantage and one value per step. This file has 24 bytes per token.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from rl_agents.errors import InputError
from rl_agents.store.files import BUSY_S, PRIVATE

TOKENS_FILE = "tokens.sqlite"
#: In the file's header: "rlat", and the version of its table.
APPLICATION, VERSION = 0x726C6174, 1
#: The numbers of a token, in order.
#: advantage: with the weights of groups and steps; ratio: probability after the update divided by that before it, the
#: denominator of the loss; gap: log-probability by the learner before the update minus the engine's; entropy: nats, of
#: the sampling distribution before the update; correction: factor on the loss for the logprob mismatch, 1 if there is
#: none; mask: 1 if the token is in the loss, else 0.
LAYERS = ("advantage", "ratio", "gap", "entropy", "correction", "mask")
TABLE = """
CREATE TABLE scores (session TEXT NOT NULL, ordinal INTEGER NOT NULL, iteration INTEGER NOT NULL,
  "update" INTEGER NOT NULL, numbers BLOB NOT NULL, PRIMARY KEY (session, ordinal, iteration, "update"));
"""
FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class StepScores:
    """A step's tokens in one update.

    Attributes:
        numbers: [`LAYERS`, sampled tokens] float32.
    """

    session: str
    ordinal: int
    iteration: int
    update: int
    numbers: FloatArray


class TokenScores:
    """Writes the file; a second record replaces the first."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, mode 600. Raises `InputError`: it cannot be created, or is something else."""
        try:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, PRIVATE))
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)
            if not self._connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                header = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
                self._connection.executescript(f"BEGIN; {TABLE} {header} COMMIT;")
            _check(self._connection, path)
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: cannot write the tokens' numbers there: {error}") from None

    def write(self, found: Iterable[StepScores]) -> None:
        """Write steps, all of them or none."""
        rows = [(s.session, s.ordinal, s.iteration, s.update, s.numbers.astype("<f4").tobytes()) for s in found]
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?, ?, ?, ?)", rows)
        self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def read_step(path: Path, session: str, ordinal: int) -> StepScores | None:
    """Return a step's tokens in the last update that trained on it; None if they are not recorded.

    Raises:
        InputError: the file is something else, or was written by a newer version.
    """
    if not path.is_file():
        return None
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True, timeout=BUSY_S)
        with contextlib.closing(connection):
            _check(connection, path)
            row = connection.execute(
                'SELECT iteration, "update", numbers FROM scores WHERE session = ? AND ordinal = ? '
                'ORDER BY iteration DESC, "update" DESC LIMIT 1', (session, ordinal),
            ).fetchone()  # fmt: skip
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if row is None:
        return None
    return StepScores(session, ordinal, row[0], row[1], np.frombuffer(row[2], "<f4").reshape(len(LAYERS), -1))


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise InputError(f"{path}: not a file of tokens' numbers (run.py replay --tokens)")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise InputError(f"{path}: written by a newer version (schema {version}; this one knows {VERSION})")
