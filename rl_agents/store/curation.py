"""What people decided about sessions and steps, replayed from the rows that they left."""

from __future__ import annotations

import dataclasses
import getpass
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rl_agents.data.trajectory import Step
from rl_agents.errors import InputError
from rl_agents.store.files import open_reading, open_writing
from rl_agents.store.records import Curation
from rl_agents.store.schema import ROWS

#: The session as a whole, instead of a step's ordinal.
WHOLE = -1


def user_name() -> str:
    """Who decides, as the system knows them; empty where it has no name for them, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


@dataclass(frozen=True, slots=True)
class Decision:
    """What all decisions about one session come to.

    Attributes:
        excluded: it is not to be trained on.
        kept: the last decision is to keep it.
        weight: how much it counts in the loss.
        rewards: by a step's ordinal (`WHOLE`: the last step), instead of the recorded ones.
        excluded_steps: ordinals of steps that are not to be trained on; they stay in the episode.
        step_weights: by ordinal, on top of ``weight``.
    """

    excluded: bool = False
    kept: bool = False
    weight: float = 1.0
    rewards: Mapping[int, float] = field(default_factory=dict)
    excluded_steps: frozenset[int] = frozenset()
    step_weights: Mapping[int, float] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return self == Decision()

    def weight_of(self, ordinal: int) -> float:
        """Return the weight of a step: 0 where it or the session is excluded."""
        if self.excluded or ordinal in self.excluded_steps:
            return 0.0
        return self.weight * self.step_weights.get(ordinal, 1.0)

    def rewards_of(self, steps: int) -> dict[int, float]:
        """Return ``rewards`` of an episode of so many steps, `WHOLE` resolved; what was said last wins."""
        return {steps - 1 if ordinal == WHOLE else ordinal: value for ordinal, value in self.rewards.items()}

    def rewarded(self, steps: Sequence[Step]) -> list[Step]:
        rewards = self.rewards_of(len(steps))
        return [
            dataclasses.replace(step, reward=rewards[ordinal]) if ordinal in rewards else step
            for ordinal, step in enumerate(steps)
        ]


def effective(rows: Iterable[tuple[int, Curation]]) -> dict[str, Decision]:
    """Replay numbered rows, in the order of their numbers: later ones win, and what was undone never was.

    A row that takes another back decides nothing itself and cannot be taken back: decide again instead.
    """
    ordered = sorted(rows, key=lambda row: row[0])
    undone = {row.undoes for _, row in ordered if row.undoes}
    decisions: dict[str, Decision] = {}
    for number, row in ordered:
        if number not in undone and not row.undoes:
            decisions[row.session] = _decide(decisions.get(row.session, Decision()), row)
    return decisions


def _decide(before: Decision, row: Curation) -> Decision:
    if row.verdict == "note":  # words for people; it must not lift an exclusion
        return before
    whole, value = row.ordinal == WHOLE, row.value
    if row.verdict == "reward" and value is not None:
        others = {ordinal: reward for ordinal, reward in before.rewards.items() if ordinal != row.ordinal}
        return dataclasses.replace(before, rewards={**others, row.ordinal: value})
    if row.verdict == "weight" and value is not None:
        if whole:
            return dataclasses.replace(before, weight=value)
        return dataclasses.replace(before, step_weights={**before.step_weights, row.ordinal: value})
    excluded = row.verdict == "exclude"
    if whole:
        return dataclasses.replace(before, excluded=excluded, kept=not excluded)
    steps = before.excluded_steps - {row.ordinal}
    return dataclasses.replace(before, excluded_steps=steps | {row.ordinal} if excluded else steps)


def curate(path: Path, rows: Sequence[Curation]) -> list[int]:
    """Add decisions to a pool, all or none, also while its writer is at work; they are on disk when this returns.

    Returns:
        their numbers, to undo them by.

    Raises:
        InputError: there is no such pool, or it cannot be written.
    """
    open_reading(path).close()
    connection = open_writing(path)
    table = ROWS[Curation]
    try:
        connection.execute("BEGIN IMMEDIATE")
        insert = f"{table.insert} RETURNING number"
        numbers = [int(connection.execute(insert, [*table.row(row), time.time()]).fetchone()[0]) for row in rows]
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise InputError(f"{path}: cannot write to the pool: {error}") from None
    finally:
        connection.close()
    return numbers
