"""What a sweep found: one line for each point, the best one as a recipe, and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import yaml

from rl_agents.durable import replace_text
from rl_agents.reporting.run_folder import json_safe
from rl_agents.trainer.unused_keys import idle_of
from rl_agents.tuning.driver import FAILED, STOPPED_EARLY, SweepFolder
from rl_agents.tuning.plots import plot_points
from rl_agents.tuning.results import DONE, RATE, UNFINISHED, PointResult, TrialResult, best_point, collect, mean
from rl_agents.tuning.space import short
from rl_agents.tuning.sweep import Sweep


def write_results(sweep: Sweep, folder: SweepFolder) -> dict[str, Any]:
    """Write results.json, results.md, best.yaml and the plot into the sweep's folder; return the first."""
    points = collect(sweep, folder)
    best = best_point(sweep, points)
    complete = all(trial.status not in (UNFINISHED, FAILED) for point in points for trial in point.trials)
    done = sum(point.status == DONE for point in points)
    of = f"{len(points)} points" if complete else f"{done} of {len(points)} points so far"
    picture = plot_points(sweep, points, folder.path)
    results: dict[str, Any] = json_safe(
        {
            "sweep": sweep.name,
            "status": "done" if complete else "incomplete",
            "metric": sweep.metric,
            "mode": sweep.mode,
            "seeds": sweep.seeds,
            "best": None if best is None else {"keys": best.keys, "of": of, "interval": _interval(best)},
            "points": [{**asdict(point), "interval": _interval(point)} for point in points],
            "plot": picture,
        }
    )
    replace_text(folder.path / "results.json", json.dumps(results, indent=1) + "\n")
    replace_text(folder.path / "results.md", markdown(sweep, points))
    if best is not None:
        replace_text(folder.path / "best.yaml", recipe(sweep, best, of))
    return results


def _interval(point: PointResult) -> dict[str, float] | None:
    return None if point.interval is None else point.interval.to_dict()


def markdown(sweep: Sweep, points: Sequence[PointResult]) -> str:
    """Return the results as a table, the best point first, and below it everything that went wrong."""
    sign = -1 if sweep.mode == "max" else 1
    ordered = sorted(points, key=lambda p: (p.status != DONE, p.interval is None, sign * mean(p) if p.interval else 0))
    names = list(sweep.space)
    head = [*names, sweep.metric, "95 % interval", "iteration", "seconds", "status"]
    rows = [_row(names, point) for point in ordered]
    lines = [
        f"# {sweep.name}", "", _explanation(sweep), "",
        *("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)),
    ]  # fmt: skip
    notes = [note for point in points for trial in point.trials for note in trial_notes(trial)]
    return "\n".join([*lines, *(["", *(f"- {note}" for note in notes)] if notes else []), ""])


def _explanation(sweep: Sweep) -> str:
    is_rate = sweep.metric == RATE
    over = (
        f"mean over {sweep.seeds} seeds, Student-t interval over them{', at least Wilson over all episodes' * is_rate}"
        if sweep.seeds > 1
        else "one run for each point, Wilson interval over the episodes of its last evaluation" if is_rate
        else "one run for each point"
    )  # fmt: skip
    return f"{sweep.metric} at the end of each run: {over}."


def _row(names: Sequence[str], point: PointResult) -> list[str]:
    interval = point.interval
    bounds = "" if interval is None or math.isnan(interval.low) else f"[{interval.low:.3f}, {interval.high:.3f}]"
    return [
        *(short(point.keys[name]) for name in names),
        "" if interval is None else f"{interval.mean:.3f}",
        bounds,
        str(max(trial.iteration for trial in point.trials)),
        f"{sum(trial.seconds for trial in point.trials):.0f}",
        point.status,
    ]


def trial_notes(trial: TrialResult) -> list[str]:
    """Return sentences about what went wrong in a trial, and whom it took over."""
    notes = []
    if trial.reason and trial.status not in (DONE, STOPPED_EARLY):
        notes.append(f"{trial.name}: {trial.status}: {trial.reason}")
    if trial.not_finite:
        tags = ", ".join(f"{tag} (first at iteration {since})" for tag, since in trial.not_finite.items())
        notes.append(f"{trial.name}: not finite: {tags}")
    notes.extend(f"{trial.name}: took over {e['from']} at iteration {e['iteration']}" for e in trial.lineage)
    return notes


def recipe(sweep: Sweep, best: PointResult, of: str) -> str:
    """Return the best point, ``of`` those that compete, as a recipe for ``run.py --config``."""
    keys = {name: value for name, value in {**sweep.keys, **best.keys}.items() if name != "seed"}
    idle = idle_of(sweep.run_keys(keys))
    keys = {name: value for name, value in keys.items() if name not in idle}
    interval = best.interval
    assert interval is not None
    comment = [
        f"# Best of {of} of {sweep.name}: {sweep.metric} {interval.mean:.3f}, "
        f"{len(best.trials)} run{'s' if len(best.trials) > 1 else ''} each.",
    ]
    if any(trial.lineage for trial in best.trials):
        comment.append("# Keys changed during the run; these are the last values, see results.json for the rest.")
    return "\n".join([*comment, yaml.safe_dump(keys, sort_keys=False, allow_unicode=True)])
