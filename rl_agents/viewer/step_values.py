"""Advantages and values of steps, read for many sessions at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from rl_agents.store.reader import TAKEN_BACK, PoolReader, marks, parts
from rl_agents.store.schema import load_text
from rl_agents.viewer.query_params import Params

#: Number of lowest and of highest advantages of an iteration, and of rows that are read to find them; many methods give
#: all steps of an episode the same advantage.
EXTREMES, READ = 8, 400
#: Characters of their actions.
SAID = 160
#: Thoughts: with tags (to the end if the tag is not closed), with a tag that the prompt opened, and ReAct's.
THOUGHT = re.compile(
    r"<(think|thought|reasoning)>.*?(?:</\1>|\Z)|\A(?:(?!<think>).)*?</think>|^Thought:.*?(?=^Action|\Z)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)


def split_thoughts(response: str) -> tuple[str, str]:
    """Return the action and the thoughts of a response."""
    thoughts = " ".join(match[0].strip() for match in THOUGHT.finditer(response))
    return (THOUGHT.sub("", response).strip(), thoughts) if thoughts else (response, "")


def excerpt(response: str, most: int) -> str:
    """Return the first characters of a response with its actions before its thoughts."""
    return " ".join(part for part in split_thoughts(response) if part)[:most]


@dataclass(frozen=True, slots=True)
class Worth:
    """Means over a step's sampled tokens, in the last update that trained on it."""

    advantage: float
    value: float | None
    iteration: int


def worth_of(reader: PoolReader, sessions: Sequence[str]) -> dict[str, dict[int, Worth]]:
    """Return session -> ordinal -> value of the step; sessions that were not trained on are missing."""
    found: dict[str, dict[int, Worth]] = {}
    for part in parts(sessions):
        query = (
            "SELECT session, ordinal, advantage, value, iteration FROM credit "
            f"WHERE session IN ({marks(part)}) ORDER BY number"
        )
        for session, ordinal, advantage, value, iteration in reader.rows(query, *part):
            worth = Worth(float(advantage), None if value is None else float(value), iteration)
            found.setdefault(load_text(session), {})[ordinal] = worth
    return found


def extremes(params: Params) -> dict[str, Any]:
    """Return the steps of an iteration's sessions with the lowest and with the highest advantages, without zeros.

    Steps of a session with the same advantage are one row, that of the last step, with their number in ``alike``. The
    lowest are negative if any advantage is, and the highest positive. ``learned``: an update has trained on them.
    """
    query = "SELECT 1 FROM sessions s JOIN credit c ON c.session = s.id WHERE s.iteration = ? LIMIT 1"
    iteration = params.whole("iteration")
    with params.run.reader() as reader:
        return {
            "learned": reader.one(query, iteration) is not None,
            "lowest": _merged(_ordered(reader, iteration, "ASC"), -1),
            "highest": _merged(_ordered(reader, iteration, "DESC"), 1),
        }


def _merged(rows: Sequence[dict[str, Any]], sign: int) -> list[dict[str, Any]]:
    """Merge the steps of a session with the same advantage; return the first rows."""
    signed = [row for row in rows if row["advantage"] * sign > 0]
    found: dict[tuple[str, float], dict[str, Any]] = {}
    for row in signed or rows:
        known = found.setdefault((row["session"], row["advantage"]), {**row, "alike": 0})
        known.update(max(known, row, key=itemgetter("ordinal")), alike=known["alike"] + 1)
    return list(found.values())[:EXTREMES]


def _ordered(reader: PoolReader, iteration: int, order: str) -> list[dict[str, Any]]:
    # If a session was trained on again after a resumption, the last row counts.
    query = (
        "SELECT c.session, c.ordinal, c.advantage, c.value, sessions.task_id, sessions.kind, o.action, "
        "o.reward FROM sessions JOIN credit c ON c.session = sessions.id "
        "JOIN outcomes o ON o.session = c.session AND o.ordinal = c.ordinal "
        f"WHERE sessions.iteration = ? AND c.advantage != 0 AND NOT EXISTS ({TAKEN_BACK}) "
        "AND NOT EXISTS (SELECT 1 FROM credit later "
        "WHERE later.session = c.session AND later.ordinal = c.ordinal AND later.number > c.number) "
        f"ORDER BY c.advantage {order}, c.number LIMIT ?"
    )
    names = ("session", "ordinal", "advantage", "value", "task", "kind", "action", "reward")
    rows = [dict(zip(names, row, strict=True)) for row in reader.rows(query, iteration, READ)]
    for row in rows:
        row.update({name: load_text(row[name]) for name in ("session", "task", "kind", "action")})
        # Not in the database, which may store bytes and would cut a character.
        row["action"] = excerpt(row["action"], SAID)
        row["reward"], row["advantage"] = float(row["reward"]), float(row["advantage"])
    return rows
