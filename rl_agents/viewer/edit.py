"""Decisions that are made on the page, where the command line allowed it (``--edit``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rl_agents.errors import InputError
from rl_agents.store.curation import WHOLE, curate, user_name
from rl_agents.store.reader import PoolReader
from rl_agents.store.records import Curation
from rl_agents.viewer.episodes import find
from rl_agents.viewer.runs import Catalog
from rl_agents.web.errors import ApiError, bad_request

VERDICTS = ("exclude", "keep", "reward", "weight", "note")
WHY = 2_000


def decide(catalog: Catalog, data: Mapping[str, Any]) -> dict[str, Any]:
    """Add a decision to a run's pool.

    Args:
        data: ``run``, ``session`` and either ``verdict`` (with ``value``, ``ordinal``, ``why``) or ``undo``, a number.
            A ``note`` changes nothing and needs its text in ``why``.

    Raises:
        ApiError: 403 without ``--edit``, 400 for what makes no sense, 404 for what is not there.
    """
    if not catalog.edit:
        raise ApiError(403, "this page only reads: start it with --edit to decide", "read_only")
    run = catalog.run(str(data.get("run", "")))
    session = str(data.get("session", ""))
    with run.reader() as reader:
        stored = find(reader, session)
        row = _undoing(reader, session, data) if "undo" in data else _decision(session, stored.steps, data)
    try:
        return {"numbers": curate(run.pool, [row])}
    except InputError as error:
        raise ApiError(409, str(error), "not_written") from None


def _decision(session: str, steps: int, data: Mapping[str, Any]) -> Curation:
    verdict, value, ordinal = data.get("verdict"), data.get("value"), data.get("ordinal", WHOLE)
    if verdict not in VERDICTS:
        raise bad_request(f"verdict: one of {', '.join(VERDICTS)}", "verdict")
    if not isinstance(ordinal, int) or isinstance(ordinal, bool) or not WHOLE <= ordinal < steps:
        raise bad_request(f"ordinal: a step from 0 to {steps - 1}, or -1 for all", "ordinal")
    if verdict in ("reward", "weight"):
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            raise bad_request("value: a number is needed", "value")
        if verdict == "weight" and value < 0:
            raise bad_request("value: a weight is 0 or above", "value")
    else:
        value = None
    if verdict == "note" and not _why(data).strip():
        raise bad_request("why: a note needs text", "why")
    return Curation(session, verdict, ordinal, None if value is None else float(value), user_name(), _why(data))


def _undoing(reader: PoolReader, session: str, data: Mapping[str, Any]) -> Curation:
    number, rows = data["undo"], dict(reader.curation(session))
    if isinstance(number, bool) or number not in rows or rows[number].undoes:
        raise bad_request("undo: no such decision about this session", "undo")
    if any(row.undoes == number for row in rows.values()):
        raise bad_request(f"undo: decision {number} was taken back already", "undo")
    row = rows[number]
    return Curation(session, row.verdict, row.ordinal, None, user_name(), _why(data), number)


def _why(data: Mapping[str, Any]) -> str:
    why = data.get("why", "")
    if not isinstance(why, str) or len(why) > WHY:
        raise bad_request(f"why: text of at most {WHY} characters", "why")
    return why
