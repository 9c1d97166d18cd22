"""The groups of an iteration, filtered and paginated."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rl_agents.store.reader import TAKEN_BACK, PoolReader, Stored, StoreQuery, marks, parts
from rl_agents.store.schema import load_text
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.step_values import Worth, worth_of

#: Groups per page, and per read.
PAGE, READ = 60, 20
#: Seconds after which a page returns with the groups found so far.
PATIENCE_S = 0.25
KINDS = ("episode", "sample", "gateway", "evaluation", "expert")


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of groups: each test must hold for at least one member, and `flat` for the group.

    Attributes:
        flat: all advantages are 0, so there is no gradient.
    """

    outcome: str = ""
    cause: str = ""
    text: str = ""
    lowest: float | None = None
    highest: float | None = None
    flat: bool = False
    env: str = ""

    @classmethod
    def of(cls, params: Params) -> Filter:
        """Read the filters of a request; raises `ApiError` (400)."""
        return cls(
            params.text("outcome", ""), params.text("cause", ""), params.text("text", ""), params.number("min"),
            params.number("max"), params.text("flat", "") == "1", params.text("env", ""),
        )  # fmt: skip

    def takes(self, members: Sequence[Stored], worth: Mapping[str, Mapping[int, Worth]], bad: set[str]) -> bool:
        """Return whether a group passes; ``bad``: sessions with an invalid action."""
        if self.flat and any(w.advantage for m in members for w in worth.get(m.session.id, {}).values()):
            return False
        return any(self._takes(member, bad) for member in members)

    def _takes(self, member: Stored, bad: set[str]) -> bool:
        session = member.session
        tests = {
            "solved": session.success, "unsolved": not session.success and not session.failed,
            "failed": session.failed, "invalid": session.id in bad, "truncated": session.truncated,
        }  # fmt: skip
        return (
            tests.get(self.outcome, True)
            and session.end_cause.startswith(self.cause)
            and self.env in ("", session.env)
            and (self.lowest is None or member.total >= self.lowest)
            and (self.highest is None or member.total <= self.highest)
        )


def groups(params: Params) -> dict[str, Any]:
    """Return a page of an iteration's groups, ordered by number."""
    run, iteration = params.run, params.whole("iteration")
    wanted, after = Filter.of(params), params.whole("after", -(2**62))
    with run.reader() as reader:
        kinds = _kinds(reader, iteration)
        kind = params.text("kind", "") or next((k for k in KINDS if k in kinds), "episode")
        rows, last, more = _page(reader, iteration, kind, wanted, after)
        return {
            "run": run.name, "iteration": iteration, "kind": kind, "kinds": kinds, "rows": rows,
            "next": last if more else None, "causes": _causes(reader, iteration, kind),
            "around": around(reader, iteration), "envs": _environments(reader, iteration),
        }  # fmt: skip


def around(reader: PoolReader, iteration: int) -> dict[str, int | None]:
    before = reader.one("SELECT max(iteration) FROM sessions WHERE iteration < ?", iteration)[0]
    after = reader.one("SELECT min(iteration) FROM sessions WHERE iteration > ?", iteration)[0]
    return {"before": before, "after": after}


def session_row(stored: Stored, worth: Mapping[int, Worth]) -> dict[str, Any]:
    session = stored.session
    advantages = [w.advantage for w in worth.values()]
    return {
        "id": session.id, "member": session.member, "return": stored.total, "success": session.success,
        "failed": session.failed, "cause": session.end_cause, "steps": stored.steps,
        "advantages": [min(advantages), max(advantages)] if advantages else None,
    }  # fmt: skip


def members_of(reader: PoolReader, iteration: int, group: int, kind: str) -> list[Stored]:
    """Return the sessions of one group, failures first."""
    return sorted(reader.stored(StoreQuery(iteration=iteration, group=group, kind=kind)), key=_failures_first)


def _failures_first(stored: Stored) -> tuple[bool, bool, float, int]:
    session = stored.session
    return not session.failed, session.success, stored.total, session.member


def _kinds(reader: PoolReader, iteration: int) -> dict[str, int]:
    query = f"SELECT kind, count(*) FROM sessions WHERE iteration = ? AND NOT EXISTS ({TAKEN_BACK}) GROUP BY kind"
    return dict(reader.rows(query, iteration))


def _environments(reader: PoolReader, iteration: int) -> list[str]:
    return sorted(
        load_text(env) for (env,) in reader.rows("SELECT DISTINCT env FROM sessions WHERE iteration = ?", iteration)
    )


def _causes(reader: PoolReader, iteration: int, kind: str) -> dict[str, int]:
    """Return end causes without details and their counts, the most frequent first."""
    query = (
        f"SELECT end_cause, count(*) FROM sessions WHERE iteration = ? AND kind = ? AND NOT EXISTS ({TAKEN_BACK}) "
        "GROUP BY end_cause"
    )
    found: dict[str, int] = {}
    for cause, count in reader.rows(query, iteration, kind):
        name = load_text(cause).partition(":")[0]
        found[name] = found.get(name, 0) + count
    return dict(sorted(found.items(), key=lambda item: -item[1])[:20])


def _page(
    reader: PoolReader, iteration: int, kind: str, wanted: Filter, after: int
) -> tuple[list[dict[str, Any]], int, bool]:
    """Return the rows of a page, the last group that was read, and whether there may be more."""
    deadline, rows, last = time.monotonic() + PATIENCE_S, list[dict[str, Any]](), after
    while len(rows) < PAGE and (not rows or time.monotonic() < deadline):
        names = _sessions(reader, iteration, kind, last)
        if not names:
            return rows, last, False
        last = max(names)
        for group, members, worth, bad in _read(reader, names, wanted.text):
            if wanted.takes(members, worth, bad):
                rows.append(_group_row(group, members, worth, bad))
        if time.monotonic() > deadline:
            break
    return rows, last, True


def _sessions(reader: PoolReader, iteration: int, kind: str, after: int) -> dict[int, list[str]]:
    """Return group -> session ids of the next groups."""
    numbers = "SELECT DISTINCT group_id FROM sessions WHERE iteration = ? AND group_id > ? ORDER BY group_id LIMIT ?"
    chosen = [row[0] for row in reader.rows(numbers, iteration, after, READ)]
    found: dict[int, list[str]] = {number: [] for number in chosen}
    query = (
        f"SELECT group_id, id FROM sessions WHERE iteration = ? AND group_id IN ({marks(chosen)}) AND kind = ? "
        f"AND NOT EXISTS ({TAKEN_BACK})"
    )
    for group, name in reader.rows(query, iteration, *chosen, kind) if chosen else ():
        found[group].append(load_text(name))
    return found


Read = tuple[int, list[Stored], dict[str, dict[int, Worth]], set[str]]


def _read(reader: PoolReader, names: Mapping[int, Sequence[str]], text: str) -> Iterator[Read]:
    ids = [name for part in names.values() for name in part]
    if text:
        ids = [name for part in parts(ids) for name in _containing(reader, part, text)]
    stored = {s.session.id: s for s in reader.stored(StoreQuery(ids=ids))}
    worth, bad = worth_of(reader, ids), _unparsed(reader, ids)
    for group, part in names.items():
        members = sorted((stored[name] for name in part if name in stored), key=_failures_first)
        if members:
            yield group, members, worth, bad


def _containing(reader: PoolReader, ids: Sequence[str], text: str) -> list[str]:
    query = (
        f"SELECT DISTINCT session FROM outcomes WHERE session IN ({marks(ids)}) "
        "AND (instr(lower(action), lower(?)) > 0 OR instr(lower(observation), lower(?)) > 0)"
    )
    return [load_text(row[0]) for row in reader.rows(query, *ids, text, text)]


def _unparsed(reader: PoolReader, ids: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for part in parts(ids):
        query = f"SELECT DISTINCT session FROM outcomes WHERE session IN ({marks(part)}) AND valid = 0"
        found |= {load_text(row[0]) for row in reader.rows(query, *part)}
    return found


def _group_row(
    group: int, members: Sequence[Stored], worth: Mapping[str, Mapping[int, Worth]], bad: set[str]
) -> dict[str, Any]:
    first = members[0].session
    rows = [session_row(member, worth.get(member.session.id, {})) for member in members]
    return {
        "group": group, "task": first.task_id, "members": rows, "seed": str(first.seed),
        "invalid": sum(member.session.id in bad for member in members),
    }  # fmt: skip
