"""The start page: summaries of runs, and their curves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rl_agents.reporting.statistics import few_tasks
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.runs import Run

#: Most points of a curve, about the number of pixels.
POINTS = 400
#: Prefix of the tags of end causes; most causes in a chart.
END, CAUSES = "end_cause/", 7
#: Keys of a run's configuration on the start page.
KEYS = ("algo", "env", "seed", "model", "iterations", "tasks_per_iteration", "group_size", "lr", "gamma", "gae_lambda")
#: Metrics of every iteration on a run's page.
HEADLINES = (
    "rollout/success_rate", "rollout/return_mean", "rollout/turns_mean", "rollout/zero_advantage_share",
    "rollout/invalid_action_share", "rollout/failed_episodes", "actor/entropy", "actor/ppo_kl",
    "actor/clip_fraction", "rollout_corr/logprob_diff_max", "eval/success_rate", "collapse_monitor/success",
)  # fmt: skip


def runs(params: Params) -> dict[str, Any]:
    """Return the summaries of all runs, without curves."""
    catalog = params.catalog
    catalog.refresh()
    found = list(catalog.runs.values())
    return {"runs": [about(run) for run in found], "bands": bands(found), "sweeps": list(catalog.sweeps)}


def state(params: Params) -> dict[str, Any]:
    """Return stamps that change when runs write something; pages poll them."""
    params.catalog.refresh()
    return {"stamps": {name: run.stamp() for name, run in params.catalog.runs.items()}}


def about(run: Run) -> dict[str, Any]:
    """Return a run's summary."""
    settings, records, summary = run.settings(), run.records(), run.summary()
    newest = records[-1] if records else {}
    return {
        "name": run.name,
        "sweep": run.sweep,
        "settings": {name: settings[name] for name in KEYS if name in settings},
        "status": "live" if run.is_live() else summary.get("status", "stopped" if records else ""),
        "iteration": newest.get("iteration", 0),
        "planned": settings.get("iterations"),
        "seconds": newest.get("seconds"),
        "success": _last(records, "rollout/success_rate"),
        "evaluation": _evaluation(records),
        "pool": run.has_pool,
        "last": last_iteration(run),
    }


def last_iteration(run: Run) -> int | None:
    """Return the newest iteration in the pool; None without one."""
    if not run.has_pool:
        return None
    with run.reader() as reader:
        found: int | None = reader.one("SELECT max(iteration) FROM sessions")[0]
    return found


def series(params: Params) -> dict[str, Any]:
    """Return all curves of a run: tag -> [[iteration, value]...], only numbers; and its `axes`."""
    run = params.run
    points: dict[str, list[tuple[int, float]]] = {}
    for record in run.records():
        for tag, value in record.items():
            if tag != "iteration" and isinstance(value, int | float) and not isinstance(value, bool):
                points.setdefault(tag, []).append((record["iteration"], value))
    return {
        "run": run.name,
        "series": {tag: thinned(line) for tag, line in sorted(points.items())},
        "axes": axes(run.records()),
        "ends": ends(run.records()),
    }


def axes(records: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Return name -> [[iteration, what it and all before it took]...] of the axes other than iterations."""
    steps = tokens = 0.0
    found: dict[str, list[tuple[int, float]]] = {}
    for r in records:
        steps += (r.get("search/env_steps") or r.get("rollout/turns") or 0) + (r.get("collapse_monitor/turns") or 0)
        tokens += sum(r.get(f"{part}/response_tokens") or 0 for part in ("rollout", "collapse_monitor"))
        places = {"environment steps": steps, "sampled tokens": tokens, "seconds": r.get("seconds") or 0.0}
        for name, place in places.items():
            found.setdefault(name, []).append((r["iteration"], place))
    return {name: line for name, line in found.items() if line[-1][1]}


def ends(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return end causes: ``causes``, the most frequent first, and ``points`` [[iteration, share of each cause...]...].

    A cause that an iteration's metrics lack has share 0. Causes beyond `CAUSES` are ``other``.
    """
    found = [
        (r["iteration"], {t[len(END) :]: v for t, v in r.items() if t.startswith(END) and t.count("/") == 1})
        for r in records
    ]
    found = [(iteration, shares) for iteration, shares in found if shares]
    totals: Counter[str] = Counter()
    for _, shares in found:
        totals.update(shares)
    named = [cause for cause, _ in totals.most_common(CAUSES if len(totals) <= CAUSES else CAUSES - 1)]
    lines = [thinned([(iteration, shares.get(cause, 0.0)) for iteration, shares in found]) for cause in named]
    if len(totals) > len(named):
        rest = [(i, sum(share for cause, share in shares.items() if cause not in named)) for i, shares in found]
        named, lines = [*named, "other"], [*lines, thinned(rest)]
    points = [[at[0][0], *(share for _, share in at)] for at in zip(*lines, strict=True)]
    return {"causes": named, "points": points}


def iterations(params: Params) -> dict[str, Any]:
    """Return the iterations of a run, newest first, with their `HEADLINES`; also those with only a pool.

    The pool counts iterations from 0 and metrics count completed ones, so iteration i of the pool is record i + 1.
    """
    run = params.run
    records = {record["iteration"] - 1: record for record in run.records() if record["iteration"] > 0}
    sampled: set[int] = set()
    if run.has_pool:
        with run.reader() as reader:
            sampled = {int(row[0]) for row in reader.rows(DISTINCT)}
    rows = [_row(number, records.get(number, {}), number in sampled) for number in sorted(sampled | set(records))]
    return {"run": run.name, "tags": HEADLINES, "rows": rows[::-1], "settings": run.settings(), "about": about(run)}


#: Distinct iterations, each found in the index from the previous one.
DISTINCT = (
    "WITH RECURSIVE t(i) AS (SELECT min(iteration) FROM sessions UNION ALL "
    "SELECT (SELECT min(iteration) FROM sessions WHERE iteration > t.i) FROM t WHERE t.i IS NOT NULL) "
    "SELECT i FROM t WHERE i IS NOT NULL"
)


def _row(number: int, record: Mapping[str, Any], sampled: bool) -> dict[str, Any]:
    causes = {tag.removeprefix(END): value for tag, value in record.items() if tag.startswith(END)}
    figures = {tag: record[tag] for tag in HEADLINES if record.get(tag) is not None}
    return {"iteration": number, "sampled": sampled, "figures": figures, "causes": causes}


def bands(found: Sequence[Run]) -> list[list[str]]:
    """Group runs whose configurations differ only in the seed."""
    groups: dict[str, list[str]] = {}
    for run in found:
        keys = {name: value for name, value in run.settings().items() if name != "seed"}
        groups.setdefault(repr(sorted(keys.items())) if keys else run.name, []).append(run.name)
    return list(groups.values())


def thinned(points: Sequence[tuple[int, float]], most: int = POINTS) -> list[list[float]]:
    """Return at most ``most`` points: means of neighbors, with the first and last point unchanged."""
    finite = [(at, value) for at, value in points if math.isfinite(value)]
    if len(finite) <= most:
        return [[at, _short(value)] for at, value in finite]
    size = math.ceil((len(finite) - 2) / (most - 2))
    inner = finite[1:-1]
    means = [inner[start : start + size] for start in range(0, len(inner), size)]
    middle = [[part[len(part) // 2][0], _short(sum(v for _, v in part) / len(part))] for part in means]
    return [[finite[0][0], _short(finite[0][1])], *middle, [finite[-1][0], _short(finite[-1][1])]]


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _last(records: Sequence[Mapping[str, Any]], tag: str) -> float | None:
    return next((float(record[tag]) for record in reversed(records) if record.get(tag) is not None), None)


def _evaluation(records: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    tag = "eval/success_rate"
    found = next((record for record in reversed(records) if record.get(tag) is not None), None)
    if found is None:
        return None
    parts = {part: found.get(f"eval/success_{part}") for part in ("low", "high")}
    start = next(record[tag] for record in records if record.get(tag) is not None)
    episodes, tasks = (found.get(f"eval/{count}") or 0.0 for count in ("episodes", "tasks"))
    notes = [f"{episodes:.0f} episodes of {tasks:.0f} tasks", few_tasks(episodes, tasks)] if tasks else []
    parts |= {"start": start, "note": ". ".join(filter(None, notes))}
    return {"iteration": found["iteration"], "rate": found[tag], **parts}
