"""The history of a task over iterations and runs, a curriculum's tasks, and full-text search."""

from __future__ import annotations

import time
from typing import Any

from rl_agents.data.difficulty import Difficulty
from rl_agents.durable import read_json
from rl_agents.reporting.manifest import STATE
from rl_agents.store.reader import TAKEN_BACK, PoolReader, StoreQuery
from rl_agents.store.schema import load_text
from rl_agents.viewer.groups import session_row
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.runs import Run
from rl_agents.viewer.step_values import worth_of
from rl_agents.web.errors import bad_request

#: Most sessions of a task, and tasks of a curriculum; hits and seconds of a search, and rows per read.
LISTED, HITS, SEARCH_S, CHUNK = 400, 50, 0.4, 4_000
AROUND = 90


def task(params: Params) -> dict[str, Any]:
    """Return every episode of a task by iteration, of all runs or of one."""
    name, only = params.text("task"), params.text("run", "")
    runs = [params.catalog.run(only)] if only else list(params.catalog.runs.values())
    found = {run.name: rows for run in runs if run.has_pool and (rows := _history(run, name))}
    return {"task": name, "runs": found}


def _history(run: Run, name: str) -> list[dict[str, Any]]:
    query = f"SELECT id FROM sessions WHERE task_id = ? AND NOT EXISTS ({TAKEN_BACK}) ORDER BY number"
    with run.reader() as reader:
        ids = [load_text(row[0]) for row in reader.rows(query, name)]
        if len(ids) > LISTED:  # spread over the run, including the newest
            ids = [ids[len(ids) * place // LISTED] for place in range(LISTED - 1)] + ids[-1:]
        worth = worth_of(reader, ids)
        return [
            {**session_row(one, worth.get(one.session.id, {})), "iteration": one.session.iteration,
             "kind": one.session.kind, "group": one.session.group_id}
            for one in reader.stored(StoreQuery(ids=ids))
        ]  # fmt: skip


def curriculum(params: Params) -> dict[str, Any]:
    """Return what the newest checkpoint of a run with ``task_sampling=difficulty`` knows of its tasks.

    Returns:
        ``rows``: [task, estimated success, number of recent episodes, weight], the most frequently drawn first.
    """
    complete = params.run.folder.complete_checkpoints()
    counts = read_json(complete[-1][1] / STATE, dict)["counters"].get("success", {}) if complete else {}
    state, names = Difficulty(1.0, counts), list(counts)
    figures = zip(names, *state.success(names), state.weights(names), strict=True)
    rows = sorted(([task, *map(float, row)] for task, *row in figures), key=lambda row: -row[3])
    iteration = complete[-1][0] if complete else None
    return {"run": params.run.name, "iteration": iteration, "tasks": len(rows), "rows": rows[:LISTED]}


def search(params: Params) -> dict[str, Any]:
    """Find words in observations and actions, the newest first, for up to `SEARCH_S`; ``next`` continues."""
    words = params.text("text").strip()
    if not words:
        raise bad_request("search text is required", "text")
    with params.run.reader() as reader:
        newest = reader.one("SELECT max(number) FROM outcomes")[0] or 0
        before = params.whole("before", newest + 1)
        hits, before = _scan(reader, words, before)
    return {"run": params.run.name, "hits": hits, "next": before if before > 1 else None, "newest": newest}


def _scan(reader: PoolReader, words: str, before: int) -> tuple[list[dict[str, Any]], int]:
    """Return hits below a number, and the number where the search stopped."""
    query = (
        "SELECT o.number, o.session, o.ordinal, o.action, o.observation, s.iteration FROM outcomes o "
        "LEFT JOIN sessions s ON s.id = o.session WHERE o.number IN "
        "(SELECT number FROM outcomes WHERE number < ? ORDER BY number DESC LIMIT ?) "
        "AND (instr(lower(o.action), lower(?)) > 0 OR instr(lower(o.observation), lower(?)) > 0) "
        "ORDER BY o.number DESC"
    )
    edge = "SELECT min(number) FROM (SELECT number FROM outcomes WHERE number < ? ORDER BY number DESC LIMIT ?) AS n"
    deadline, hits = time.monotonic() + SEARCH_S, list[dict[str, Any]]()
    while time.monotonic() < deadline and len(hits) < HITS:
        lowest = reader.one(edge, before, CHUNK)[0]
        if lowest is None:
            return hits, 0
        for number, session, ordinal, action, observation, iteration in reader.rows(query, before, CHUNK, words, words):
            if len(hits) == HITS:
                return hits, before
            texts = {"action": load_text(action), "observation": load_text(observation)}
            hits.append(
                {"session": load_text(session), "ordinal": ordinal, "iteration": iteration, **_found(texts, words)}
            )
            before = number
        before = lowest
    return hits, before


def _found(texts: dict[str, str], words: str) -> dict[str, Any]:
    """Return the place of the words, with the surrounding text."""
    for part, text in texts.items():
        if (place := text.lower().find(words.lower())) >= 0:
            start = max(0, place - AROUND)
            end = place + len(words)
            return {"part": part, "lead": text[start:place], "hit": text[place:end], "tail": text[end : end + AROUND]}
    return {"part": "action", "lead": texts["action"][:AROUND], "hit": "", "tail": ""}
