"""A sweep: its points with their values, for a table and a heat map."""

from __future__ import annotations

import json
from typing import Any

from rl_agents.viewer.query_params import Asked
from rl_agents.viewer.runs import RESULTS
from rl_agents.web.errors import ApiError


def sweep(asked: Asked) -> dict[str, Any]:
    """What ``results.json`` of a sweep says, with the names of the runs that are shown of it."""
    name = asked.text("sweep")
    if name not in asked.catalog.sweeps:
        raise ApiError(404, f"no sweep '{name}' here", "unknown_sweep", "sweep")
    file = asked.catalog.sweeps[name] / RESULTS
    try:
        results = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    except (json.JSONDecodeError, OSError):
        results = {}
    runs = {run.folder.path.name: run.name for run in asked.catalog.runs.values() if run.sweep == name}
    return {"sweep": name, "results": results, "runs": runs}
