"""The views that a page may request, and the functions that compute them, for both server and export."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from rl_agents.durable import read_json
from rl_agents.errors import InputError
from rl_agents.reporting.run_folder import json_safe
from rl_agents.viewer import curves, episodes, groups, step_values, tasks, tokens, trees
from rl_agents.viewer.query_params import Params
from rl_agents.viewer.runs import RESULTS, Catalog
from rl_agents.web.errors import ApiError


def sweep(params: Params) -> dict[str, Any]:
    """Return ``results.json`` of a sweep, and the names of its runs."""
    name = params.text("sweep")
    if name not in params.catalog.sweeps:
        raise ApiError(404, f"unknown sweep '{name}'", "unknown_sweep", "sweep")
    file = params.catalog.sweeps[name] / RESULTS
    try:
        results = read_json(file, dict) if file.is_file() else {}
    except (InputError, OSError):
        results = {}
    runs = {run.folder.path.name: run.name for run in params.catalog.runs.values() if run.sweep == name}
    return {"sweep": name, "results": results, "runs": runs}


VIEWS: dict[str, Callable[[Params], dict[str, Any]]] = {
    "runs": curves.runs,
    "state": curves.state,
    "series": curves.series,
    "iterations": curves.iterations,
    "groups": groups.groups,
    "steps": step_values.extremes,
    "group": episodes.group,
    "episode": episodes.episode,
    "text": episodes.text,
    "tokens": tokens.tokens,
    "searches": trees.searches,
    "tree": trees.tree,
    "task": tasks.task,
    "curriculum": tasks.curriculum,
    "search": tasks.search,
    "sweep": sweep,
}


def answer(catalog: Catalog, view: str, values: Mapping[str, str]) -> str:
    """Return a view's data as JSON in ASCII, which a page can parse regardless of the model's output.

    Raises:
        ApiError: an unknown view, run, session or parameter, or a pool that cannot be read.
    """
    if view not in VIEWS:
        raise ApiError(404, f"unknown view '{view[:40]}'", "unknown_view")
    try:
        data = json_safe(VIEWS[view](Params(catalog, values)))
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except InputError as error:
        raise ApiError(409, str(error), "unreadable_pool") from None
    except sqlite3.Error as error:
        raise ApiError(503, f"the pool cannot be read now: {error}", "pool_busy") from None
