"""What is in a pool, and what it costs."""

from __future__ import annotations

from typing import Any

from rl_agents.store.reader import TAKEN_BACK, PoolReader


def statistics(reader: PoolReader) -> dict[str, Any]:
    """Return counts, shares and sizes of a pool, as plain data.

    ``lost``: sessions of iterations that a resumed run took back. ``bytes_per_million_tokens`` counts the tokens that
    are in the pool once: those that were sampled, and those of prompts that no earlier call holds.
    """
    counts = reader.counts()
    sampled, read = reader.one("SELECT coalesce(sum(response_tokens), 0), coalesce(sum(prompt_tokens), 0) FROM calls")
    shared = reader.one("SELECT coalesce(sum(shared), 0) FROM calls")[0]
    size = reader.size()
    kept = f"FROM sessions WHERE NOT EXISTS ({TAKEN_BACK})"
    sessions, solved, broken, first, last = reader.one(
        f"SELECT count(*), coalesce(sum(success), 0), coalesce(sum(failed), 0), min(iteration), max(iteration) {kept}"
    )
    states = dict(reader.rows(f"SELECT state, count(*) FROM lease WHERE session IN (SELECT id {kept}) GROUP BY state"))
    return {
        "sessions": sessions,
        "kinds": dict(reader.rows(f"SELECT kind, count(*) {kept} GROUP BY kind ORDER BY kind")),
        "lost": counts["sessions"] - sessions,
        "iterations": f"{first} to {last}" if sessions else "none",
        "solved": solved,
        "broken": broken,
        "states": {"ready": sessions - sum(states.values()), "leased": 0, "trained": 0} | states,
        "opened_and_not_ended": reader.one(
            "SELECT count(*) FROM openings o WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = o.session)"
        )[0],
        "decisions": counts["curation"],
        "calls": counts["calls"],
        "tokens_sampled": sampled,
        "tokens_read": read,
        "bytes": size,
        "bytes_per_call": size / max(counts["calls"], 1),
        "bytes_per_million_tokens": round(1e6 * size / max(sampled + read - shared, 1)),
    }
