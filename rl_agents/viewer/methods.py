"""Effects of step-level methods on a session: VSPO's draw of its task, the pivot's profile, stages of PRS, truncation.

The data come from the pool, the configuration and a pivot's profile; missing data are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rl_agents.algorithms.vspo import MINIMUM_VARIANCE, softmax, value_scores
from rl_agents.store.reader import TAKEN_BACK, PoolReader, Stored
from rl_agents.store.records import Session

#: Rule -> keys that affect truncation.
RULE_KEYS = {
    "t3": ("truncation_window", "truncation_stall", "truncation_min_turns"),
    "similarity": ("truncation_similarity", "truncation_embedder", "truncation_min_turns"),
    "random": ("truncation_beta", "truncation_min_turns"),
}


def marks(
    reader: PoolReader, stored: Stored, members: Sequence[Stored], settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return method -> its effects on the session; methods without effects are omitted."""
    session = stored.session
    found = {
        "vspo": vspo(reader, session, settings),
        "pivot": pivot(session, members, settings),
        "prs": stages(session, settings),
        "truncation": truncation(session, settings),
    }
    return {name: what for name, what in found.items() if what}


def vspo(reader: PoolReader, session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the task's value V_x = (R_max − μ_x)·σ²_x in its iteration, and its probability of being drawn.

    ``value``, ``variance``, ``probability`` (None without draws), ``tasks`` and how many of them ``agree``,
    ``temperature``, ``alpha`` and ``clip``. The number of draws follows from the advantages (``why``).
    """
    if settings.get("algo") != "vspo" or session.kind != "episode":
        return {}
    query = (
        "SELECT sessions.group_id, coalesce(sum(o.reward), 0) FROM sessions "
        "LEFT JOIN outcomes o ON o.session = sessions.id WHERE sessions.iteration = ? AND sessions.kind = 'episode' "
        f"AND sessions.failed = 0 AND NOT EXISTS ({TAKEN_BACK}) GROUP BY sessions.id, sessions.group_id"
    )
    returns: dict[int, list[float]] = {}
    for group, total in reader.rows(query, session.iteration):
        returns.setdefault(group, []).append(float(total))
    if session.group_id not in returns:
        return {}
    names = sorted(returns)
    scores, place = value_scores([returns[name] for name in names]), names.index(session.group_id)
    mode, kept = str(settings.get("vspo_mode", "value")), scores.kept
    drawn = mode != "none" and 0 < kept.sum() < kept.size
    temperature = float(settings.get("vspo_temperature", 0.1))
    probabilities = np.zeros(kept.size)
    if drawn:
        probabilities[kept] = softmax(scores.values[kept] if mode == "value" else np.zeros(kept.sum()), temperature)
    return {
        "value": float(scores.values[place]), "variance": float(scores.variances[place]),
        "agrees": bool(not kept[place]), "probability": float(probabilities[place]) if drawn else None,
        "tasks": int(kept.size), "agree": int((~kept).sum()), "mode": mode, "temperature": temperature,
        "alpha": settings.get("vspo_alpha"), "clip": bool(settings.get("vspo_clip", True)),
    }  # fmt: skip


def pivot(session: Session, members: Sequence[Stored], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean and population variance of the turn's scores: now, in its group, and in the profile."""
    if settings.get("env") != "pivot" or session.kind != "episode":
        return {}
    scores = [member.total for member in members if not member.session.failed]
    if not scores:
        return {}
    variance = float(np.var(scores))
    now = {"mean": float(np.mean(scores)), "variance": variance, "uniform": variance < MINIMUM_VARIANCE}
    return {**now, "rollouts": len(scores), "profile": _profile(str(settings.get("env.pivots") or ""), session.task_id)}


def _profile(file: str, turn: str) -> dict[str, Any] | None:
    """Return a turn's result of `run.py pivot profile`; None without a profile."""
    path = Path(file)
    if not file or not path.is_file():
        return None
    return _profiles(file, path.stat().st_mtime_ns).get(turn)


@lru_cache(maxsize=2)
def _profiles(file: str, _changed: int) -> dict[str, dict[str, Any]]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(file, columns=["turn_id", "mean", "variance", "scores"]).to_pylist()
    except (pyarrow.ArrowException, OSError, KeyError):
        return {}
    return {
        row["turn_id"]: {"mean": row["mean"], "variance": row["variance"], "rollouts": len(row["scores"] or [])}
        for row in table if row["mean"] is not None
    }  # fmt: skip


def stages(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stages of progressive reward shaping: value (None: not reached) and condition of each."""
    parts = session.facts.get("prs")
    if not isinstance(parts, Mapping):
        return {}
    form = str(settings.get("prs_form", "short"))
    first, second = (*(settings.get("prs_thresholds") or ()), 1.0, 1.0)[:2]
    needs = {
        "short": ("", "process ≥ 1"),
        "long": ("process ≥ 1", "judge ≥ 1"),
        "general": (f"process + format ≥ {first:g}", f"judge ≥ {second:g}"),
    }
    judge, answer = needs.get(form, ("", ""))
    rows = [("process", parts.get("process"), ""), ("format", parts.get("format"), "")]
    rows += [] if form == "short" else [("judge", parts.get("judge"), judge)]
    rows.append(("answer", parts.get("answer"), answer))
    return {
        "form": form, "stages": [{"name": name, "value": value, "needs": need} for name, value, need in rows],
        "paid": session.facts.get("environment_return"),
    }  # fmt: skip


def truncation(session: Session, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return where and why a rule truncated the episode: the recorded fact, and the keys of the rule."""
    fact = session.facts.get("truncation")
    if not isinstance(fact, Mapping):
        return {}
    names = (*RULE_KEYS.get(str(fact.get("rule")), ()), "truncation_after")
    keys = {name.removeprefix("truncation_"): settings[name] for name in names if name in settings}
    return {**fact, "keys": keys}
