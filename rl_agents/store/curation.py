"""Decisions of people about sessions and steps, replayed from their rows."""

from __future__ import annotations

import dataclasses
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

#: Ordinal of decisions about the whole session.
WHOLE = -1


@dataclass(frozen=True, slots=True)
class Decision:
    """The combined decisions about one session.

    Attributes:
        kept: the last decision is to keep it.
        weight: factor in the loss.
        rewards: replace the recorded ones, by a step's ordinal (`WHOLE`: the last step).
        excluded_steps: ordinals of steps without loss; they stay in the episode.
        step_weights: by ordinal, multiplied by ``weight``.
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
        """Return the weight of a step: 0 if it or the session is excluded."""
        if self.excluded or ordinal in self.excluded_steps:
            return 0.0
        return self.weight * self.step_weights.get(ordinal, 1.0)

    def rewards_of(self, steps: int) -> dict[int, float]:
        """Return ``rewards`` with `WHOLE` resolved, for an episode of ``steps`` steps; the last decision counts."""
        return {steps - 1 if ordinal == WHOLE else ordinal: value for ordinal, value in self.rewards.items()}

    def rewarded(self, steps: Sequence[Step]) -> list[Step]:
        rewards = self.rewards_of(len(steps))
        return [
            dataclasses.replace(step, reward=rewards[ordinal]) if ordinal in rewards else step
            for ordinal, step in enumerate(steps)
        ]


def effective(rows: Iterable[tuple[int, Curation]]) -> dict[str, Decision]:
    """Replay numbered rows in their order: later ones override earlier ones, and undone ones have no effect.

    A row that undoes another has no other effect and cannot be undone: decide again instead.
    """
    ordered = sorted(rows, key=lambda row: row[0])
    undone = {row.undoes for _, row in ordered if row.undoes}
    decisions: dict[str, Decision] = {}
    for number, row in ordered:
        if number not in undone and not row.undoes:
            decisions[row.session] = _decide(decisions.get(row.session, Decision()), row)
    return decisions


def _decide(before: Decision, row: Curation) -> Decision:
    if row.verdict == "note":  # must not lift an exclusion
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
    """Add decisions to a store, all or none, also while its writer is active; they are on disk when this returns.

    Returns:
        Their numbers, for `Curation.undoes`.

    Raises:
        InputError: there is no such store, or it cannot be written.
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
